#include "benchmarks/options.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "benchmarks/flags.hpp"
#include "benchmarks/models.hpp"
#include "benchmarks/parsing.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

// Rejects flags without effect, because the user expects one.
void refuse_idle_flags(const Flags& flags, Collective collective) {
  using enum Collective;
  struct Use {
    const char* flag;
    const Text& text;
    std::vector<Collective> collectives;
  };
  const std::vector<Collective> typed{all_reduce, reduce_scatter, all_gather,   broadcast,        all_to_all,   reduce,
                                      gather,     scatter,        all_gather_v, reduce_scatter_v, all_to_all_v, sendrecv};
  std::vector<Collective> sized = typed;
  sized.insert(sized.end(), {bucket, overlap});
  const std::vector<Use> uses{{"-b", flags.minbytes, sized},
                              {"-e", flags.maxbytes, sized},
                              {"-f", flags.stepfactor, sized},
                              {"-i", flags.stepbytes, sized},
                              {"--sizes", flags.sizes, sized},
                              {"-d", flags.datatype, typed},
                              {"-O", flags.op, {all_reduce, reduce_scatter, reduce, reduce_scatter_v}},
                              {"-r", flags.root, {broadcast, reduce, gather, scatter}},
                              {"--cache", flags.cache, typed},
                              {"--unalign", flags.unalign, typed},
                              {"--place", flags.place, {all_reduce, broadcast, reduce}},
                              {"--model", flags.model, {bucket, overlap}},
                              {"--tensors", flags.tensors, {bucket, overlap}},
                              {"--fusion-threshold", flags.fusion_threshold, {bucket, overlap}},
                              {"--wire-dtype", flags.wire_dtype, {bucket, overlap}},
                              {"--determinism", flags.determinism, {bucket, overlap}},
                              {"--compute-ms", flags.compute_ms, {overlap}}};
  for (const Use& use : uses) {
    if (!use.text || std::count(use.collectives.begin(), use.collectives.end(), collective) > 0) continue;
    std::vector<const char*> names;
    for (const Collective one : use.collectives) names.push_back(name(one));
    refuse(use.flag, *use.text, fmt::format("says nothing about {}, only about {}", name(collective), fmt::join(names, ", ")));
  }
}

void check_elements(const std::vector<Size>& sizes, const std::vector<tnt_dtype_t>& dtypes, const char* flag) {
  for (const Size& size : sizes) {
    for (const tnt_dtype_t dtype : dtypes) {
      if (size.bytes % tnt_dtype_size(dtype) == 0) continue;
      refuse(flag, format_size(size.bytes),
             fmt::format("no multiple of {}, the bytes of a {}", tnt_dtype_size(dtype), name(dtype)));
    }
  }
}

std::vector<Size> read_range(const Flags& flags, Collective collective, const std::vector<tnt_dtype_t>& dtypes) {
  std::size_t widest = 0;
  for (const tnt_dtype_t dtype : dtypes) widest = std::max(widest, tnt_dtype_size(dtype));
  Range range{.begin = parted(collective) ? max_ranks * sizeof(double) : widest, .end = std::size_t{64} << 20};
  if (flags.minbytes) {
    range.begin = parse_size("-b", *flags.minbytes);
    range.end = std::max(range.end, range.begin);
  }
  if (flags.maxbytes) {
    range.end = parse_size("-e", *flags.maxbytes);
    if (!flags.minbytes) range.begin = std::min(range.begin, range.end);
  }
  if (range.end < range.begin) refuse("-e", *flags.maxbytes, fmt::format("below -b {}", *flags.minbytes));
  if (flags.stepfactor && flags.stepbytes) refuse("-i", *flags.stepbytes, fmt::format("excludes -f {}", *flags.stepfactor));
  if (flags.stepbytes) {
    range.step = parse_size("-i", *flags.stepbytes);
  } else {
    range.factor = flags.stepfactor ? parse_positive("-f", *flags.stepfactor) : 4;
    if (range.factor <= 1) refuse("-f", *flags.stepfactor, "not above 1");
  }
  check_elements({{range.begin, ""}}, dtypes, flags.minbytes ? "-b" : "-e");
  return sizes_of(range, widest);
}

std::vector<Size> read_sizes(const Flags& flags, Collective collective, const std::vector<tnt_dtype_t>& dtypes) {
  if (collective == Collective::barrier) return {Size{}};
  if (!flags.sizes) return read_range(flags, collective, dtypes);
  for (const auto& [flag, text] : {std::pair<const char*, const Text&>{"-b", flags.minbytes},
                                   {"-e", flags.maxbytes},
                                   {"-f", flags.stepfactor},
                                   {"-i", flags.stepbytes}}) {
    if (text) refuse(flag, *text, fmt::format("excludes --sizes {}", *flags.sizes));
  }
  std::vector<Size> sizes = parse_sizes(*flags.sizes, tnt_dtype_size(dtypes.front()));
  check_elements(sizes, dtypes, "--sizes");
  return sizes;
}

// A model's gradients, or --tensors equal gradients of each size.
void read_gradients(const Flags& flags, Options& options) {
  const bool sizes = flags.sizes || flags.minbytes || flags.maxbytes;
  if (sizes && flags.model) refuse("--model", *flags.model, "excludes sizes");
  if (flags.tensors && !sizes) refuse("--tensors", *flags.tensors, "needs sizes (-b and -e, or --sizes)");
  if (!sizes) {
    const Model& model = find_model(flags.model.value_or("resnet50"));
    options.model = model.name;
    options.sizes = {{model.parameters * sizeof(float), model.name}};
    return;
  }
  if (flags.tensors) options.tensors = parse_whole("--tensors", *flags.tensors, 1, 100'000);
  options.sizes = read_sizes(flags, options.collective, options.dtypes);
  for (const Size& size : options.sizes) {
    if (size.bytes % (options.tensors * sizeof(float)) == 0) continue;
    refuse(name(options.collective), fmt::format("of {} bytes", size.bytes),
           fmt::format("not {} equal tensors of float32 (--tensors)", options.tensors));
  }
}

void read_subject(const Flags& flags, Options& options) {
  options.collective = parse_collective(flags.collective);
  refuse_idle_flags(flags, options.collective);
  if (flags.datatype) options.dtypes = parse_dtypes("-d", *flags.datatype);
  if (flags.op) options.ops = parse_ops("-O", *flags.op);
  for (const tnt_op_t op : options.ops) {  // of "all", those that the types have
    const auto& dtypes = options.dtypes;
    if (!flags.op || *flags.op == "all" ||
        std::any_of(dtypes.begin(), dtypes.end(), [op](auto dtype) { return has_op(dtype, op); }))
      continue;
    refuse("-O", *flags.op, fmt::format("{} needs an integer type, such as -d int32", name(op)));
  }
  if (flags.root) options.root = static_cast<int>(parse_whole("-r", *flags.root, 0, max_ranks - 1));
  if (options.collective == Collective::bucket || options.collective == Collective::overlap) {
    read_gradients(flags, options);
  } else {
    options.sizes = read_sizes(flags, options.collective, options.dtypes);
  }
  if (flags.fusion_threshold && *flags.fusion_threshold != "0") {
    options.fusion_threshold = parse_size("--fusion-threshold", *flags.fusion_threshold);
  } else if (flags.fusion_threshold) {
    options.fusion_threshold = 0;
  }
  if (flags.determinism) {
    constexpr std::array levels{TNT_DETERMINISM_RUN, TNT_DETERMINISM_RANKS};
    options.determinism = levels.at(parse_choice("--determinism", *flags.determinism, {"run", "ranks"}));
  }
  if (flags.wire_dtype) {
    constexpr std::array dtypes{TNT_FLOAT32, TNT_BFLOAT16, TNT_FLOAT16};
    options.wire_dtype = dtypes.at(parse_choice("--wire-dtype", *flags.wire_dtype, {"float32", "bfloat16", "float16"}));
  }
  if (flags.compute_ms) options.compute_ms = parse_positive("--compute-ms", *flags.compute_ms);
}

// In simulated time every iteration takes equally long, and neither caches nor other processes have an influence.
void read_simulation(const Flags& flags, Options& options) {
  if (options.backends.size() > 1) refuse("--backend", *flags.backend, "simulated time does not stand beside real time");
  if (!flags.platform) refuse("--backend", "simulated", "needs --platform FILE, the machine to simulate");
  if (!flags.ranks) refuse("--backend", "simulated", "needs --ranks N, how many ranks to simulate");
  if (options.collective == Collective::bucket || options.collective == Collective::overlap) {
    refuse("--backend", "simulated",
           fmt::format("not of {}: `tarantella simulate` takes a whole step", name(options.collective)));
  }
  if (uneven(options.collective)) refuse("--backend", "simulated", fmt::format("not of {}", name(options.collective)));
  for (const auto& [flag, text] : {std::pair<const char*, const Text&>{"--target", flags.target},
                                   {"--max-time", flags.max_time},
                                   {"--cache", flags.cache},
                                   {"--unalign", flags.unalign}}) {
    if (text) refuse(flag, *text, "says nothing about a simulation");
  }
  if (flags.against && options.collective != Collective::all_reduce) {
    refuse("--against", *flags.against, "simulated libraries are compared in all_reduce only");
  }
  std::error_code ignored;
  if (!std::filesystem::exists(*flags.platform, ignored)) refuse("--platform", *flags.platform, "there is no such file");
  options.platform = *flags.platform;
  options.cache = Cache::hot;
  if (!flags.iters) options.iterations = 1;
  if (!flags.warmup_iters) options.warmup = 0;
  if (!flags.place) options.place = Place::out;
}

void read_start(const Flags& flags, Options& options) {
  if (flags.backend) options.backends = parse_backends("--backend", *flags.backend);
  const bool simulated = std::count(options.backends.begin(), options.backends.end(), "simulated") > 0;
  const std::uint64_t most = simulated ? max_simulated_ranks : max_ranks;
  if (flags.ranks) options.ranks = static_cast<int>(parse_whole("--ranks", *flags.ranks, 1, most));
  if (flags.against) {
    using Choices = std::vector<std::string>;
    const Choices libraries = simulated ? Choices{"ompi", "mpich", "mvapich2", "impi"} : Choices{"mpi", "gloo", "nccl"};
    static_cast<void>(parse_choice("--against", *flags.against, libraries));
    options.against = flags.against;
  }
  if (simulated) return read_simulation(flags, options);
  if (flags.platform) refuse("--platform", *flags.platform, "needs --backend simulated");
}

void read_checks(const std::string& text, Options& options) {
  options.check_exact = options.check_accuracy = options.check_repeat = false;
  if (text == "off" || text == "0") return;
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) {  // as in nccl-tests: so often
    options.check_runs = static_cast<int>(parse_whole("--check", text, 1, 1'000'000));
    options.check_exact = options.check_accuracy = options.check_repeat = true;
    return;
  }
  for (const std::string& part : split(text)) {
    const std::size_t choice = parse_choice("--check", part, {"exact", "accuracy", "repeat", "all", "off"});
    if (choice > 3) refuse("--check", text, "off is not for lists");
    options.check_exact |= choice == 0 || choice > 2;
    options.check_accuracy |= choice == 1 || choice > 2;
    options.check_repeat |= choice == 2 || choice > 2;
  }
}

void read_method(const Flags& flags, Options& options) {
  constexpr std::uint64_t many = 1'000'000'000;
  if (flags.iters && flags.target) refuse("--target", *flags.target, fmt::format("excludes -n {}", *flags.iters));
  if (flags.iters) options.iterations = static_cast<int>(parse_whole("-n", *flags.iters, 1, many));
  if (flags.warmup_iters) options.warmup = static_cast<int>(parse_whole("-w", *flags.warmup_iters, 0, many));
  if (flags.target) options.target = parse_fraction("--target", *flags.target);
  if (flags.max_time) options.max_time = parse_positive("--max-time", *flags.max_time);
  if (flags.timeout) options.timeout = parse_positive("--timeout", *flags.timeout);
  if (flags.cache) options.cache = parse_choice("--cache", *flags.cache, {"hot", "rotate"}) == 0 ? Cache::hot : Cache::rotate;
  options.place = has_in_place(options.collective) ? Place::both : Place::out;
  if (flags.place) options.place = static_cast<Place>(parse_choice("--place", *flags.place, {"out", "in", "both"}));
  if (flags.unalign) options.unalign = parse_whole("--unalign", *flags.unalign, 0, 4096);
  if (flags.check) read_checks(*flags.check, options);
  if (flags.limit) options.measure_limit = *flags.limit == "measure";
  if (flags.limit && *flags.limit != "measure" && *flags.limit != "off") {
    options.limit_gbps = parse_positive("--limit", *flags.limit);
  }
  if (flags.seed) options.seed = parse_whole("--seed", *flags.seed, 0, UINT64_MAX);
}

void read_output(const Flags& flags, Options& options) {
  options.dry_run = flags.dry_run;
  if (flags.format)
    options.format = static_cast<Format>(parse_choice("--format", *flags.format, {"table", "jsonl", "csv", "md"}));
  if (!flags.output) return;
  if (is_op(*flags.output) || *flags.output == "all") {
    refuse("-o", *flags.output, fmt::format("the output file here; for the operation say --op {}", *flags.output));
  }
  check_file_name("-o", *flags.output);
  options.output = *flags.output;
}

}  // namespace

Options parse(int argc, const char* const* argv) {
  const Flags flags = read_flags(argc, argv);
  Options options;
  read_subject(flags, options);
  read_method(flags, options);
  read_start(flags, options);
  read_output(flags, options);
  if (options.ranks) check_ranks(options, *options.ranks);
  return options;
}

void check_ranks(const Options& options, int ranks) {
  if (options.root >= ranks) refuse("-r", std::to_string(options.root), fmt::format("no rank of {}", ranks));
  if (options.collective == Collective::sendrecv && ranks == 1) refuse("sendrecv", "of 1 rank", "nobody to send to");
  if (!parted(options.collective)) return;
  for (const Size& size : options.sizes) {
    for (const tnt_dtype_t dtype : options.dtypes) {
      const std::size_t least = tnt_dtype_size(dtype) * static_cast<std::size_t>(ranks);
      if (size.bytes >= least) continue;
      refuse(name(options.collective), fmt::format("of {} bytes", size.bytes),
             fmt::format("below {} bytes, one {} for each of {} ranks", least, name(dtype), ranks));
    }
  }
}

}  // namespace tnt::bench
