#include "benchmarks/options.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "benchmarks/flags.hpp"
#include "benchmarks/models.hpp"
#include "benchmarks/parsing.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

// Rejects flags without effect, because the user expects one.
void refuse_idle_flags(const Given& given, Collective collective) {
  using enum Collective;
  struct Use {
    const char* flag;
    const Text& text;
    std::vector<Collective> collectives;
  };
  const std::vector<Collective> typed{all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, sendrecv};
  std::vector<Collective> sized = typed;
  sized.insert(sized.end(), {bucket, overlap});
  const std::vector<Use> uses{{"-b", given.minbytes, sized},
                              {"-e", given.maxbytes, sized},
                              {"-f", given.stepfactor, sized},
                              {"-i", given.stepbytes, sized},
                              {"--sizes", given.sizes, sized},
                              {"-d", given.datatype, typed},
                              {"-O", given.op, {all_reduce, reduce_scatter}},
                              {"-r", given.root, {broadcast}},
                              {"--cache", given.cache, typed},
                              {"--unalign", given.unalign, typed},
                              {"--place", given.place, {all_reduce, broadcast}},
                              {"--model", given.model, {bucket, overlap}},
                              {"--tensors", given.tensors, {bucket, overlap}},
                              {"--fusion-threshold", given.fusion_threshold, {bucket, overlap}},
                              {"--wire-dtype", given.wire_dtype, {bucket, overlap}},
                              {"--determinism", given.determinism, {bucket, overlap}},
                              {"--compute-ms", given.compute_ms, {overlap}}};
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

std::vector<Size> read_range(const Given& given, Collective collective, const std::vector<tnt_dtype_t>& dtypes) {
  std::size_t widest = 0;
  for (const tnt_dtype_t dtype : dtypes) widest = std::max(widest, tnt_dtype_size(dtype));
  Range range{.begin = parted(collective) ? max_ranks * sizeof(double) : widest, .end = std::size_t{64} << 20};
  if (given.minbytes) {
    range.begin = parse_size("-b", *given.minbytes);
    range.end = std::max(range.end, range.begin);
  }
  if (given.maxbytes) {
    range.end = parse_size("-e", *given.maxbytes);
    if (!given.minbytes) range.begin = std::min(range.begin, range.end);
  }
  if (range.end < range.begin) refuse("-e", *given.maxbytes, fmt::format("below -b {}", *given.minbytes));
  if (given.stepfactor && given.stepbytes) refuse("-i", *given.stepbytes, fmt::format("excludes -f {}", *given.stepfactor));
  if (given.stepbytes) {
    range.step = parse_size("-i", *given.stepbytes);
  } else {
    range.factor = given.stepfactor ? parse_positive("-f", *given.stepfactor) : 4;
    if (range.factor <= 1) refuse("-f", *given.stepfactor, "not above 1");
  }
  check_elements({{range.begin, ""}}, dtypes, given.minbytes ? "-b" : "-e");
  return sizes_of(range, widest);
}

std::vector<Size> read_sizes(const Given& given, Collective collective, const std::vector<tnt_dtype_t>& dtypes) {
  if (collective == Collective::barrier) return {Size{}};
  if (!given.sizes) return read_range(given, collective, dtypes);
  for (const auto& [flag, text] : {std::pair<const char*, const Text&>{"-b", given.minbytes},
                                   {"-e", given.maxbytes},
                                   {"-f", given.stepfactor},
                                   {"-i", given.stepbytes}}) {
    if (text) refuse(flag, *text, fmt::format("excludes --sizes {}", *given.sizes));
  }
  std::vector<Size> sizes = parse_sizes(*given.sizes, tnt_dtype_size(dtypes.front()));
  check_elements(sizes, dtypes, "--sizes");
  return sizes;
}

// A model's gradients, or --tensors equal gradients of each size.
void read_gradients(const Given& given, Options& options) {
  const bool sizes = given.sizes || given.minbytes || given.maxbytes;
  if (sizes && given.model) refuse("--model", *given.model, "excludes sizes");
  if (given.tensors && !sizes) refuse("--tensors", *given.tensors, "needs sizes (-b and -e, or --sizes)");
  if (!sizes) {
    const Model& model = find_model(given.model.value_or("resnet50"));
    options.model = model.name;
    options.sizes = {{model.parameters * sizeof(float), model.name}};
    return;
  }
  if (given.tensors) options.tensors = parse_whole("--tensors", *given.tensors, 1, 100'000);
  options.sizes = read_sizes(given, options.collective, options.dtypes);
  for (const Size& size : options.sizes) {
    if (size.bytes % (options.tensors * sizeof(float)) == 0) continue;
    refuse(name(options.collective), fmt::format("of {} bytes", size.bytes),
           fmt::format("not {} equal tensors of float32 (--tensors)", options.tensors));
  }
}

void read_subject(const Given& given, Options& options) {
  options.collective = parse_collective(given.collective);
  refuse_idle_flags(given, options.collective);
  if (given.datatype) options.dtypes = parse_dtypes("-d", *given.datatype);
  if (given.op) options.ops = parse_ops("-O", *given.op);
  if (given.root) options.root = static_cast<int>(parse_whole("-r", *given.root, 0, max_ranks - 1));
  if (options.collective == Collective::bucket || options.collective == Collective::overlap) {
    read_gradients(given, options);
  } else {
    options.sizes = read_sizes(given, options.collective, options.dtypes);
  }
  if (given.fusion_threshold && *given.fusion_threshold != "0") {
    options.fusion_threshold = parse_size("--fusion-threshold", *given.fusion_threshold);
  } else if (given.fusion_threshold) {
    options.fusion_threshold = 0;
  }
  if (given.determinism) {
    constexpr std::array levels{TNT_DETERMINISM_RUN, TNT_DETERMINISM_RANKS};
    options.determinism = levels.at(parse_choice("--determinism", *given.determinism, {"run", "ranks"}));
  }
  if (given.wire_dtype) {
    constexpr std::array dtypes{TNT_FLOAT32, TNT_BFLOAT16, TNT_FLOAT16};
    options.wire_dtype = dtypes.at(parse_choice("--wire-dtype", *given.wire_dtype, {"float32", "bfloat16", "float16"}));
  }
  if (given.compute_ms) options.compute_ms = parse_positive("--compute-ms", *given.compute_ms);
}

void read_start(const Given& given, Options& options) {
  if (given.ranks) options.ranks = static_cast<int>(parse_whole("--ranks", *given.ranks, 1, max_ranks));
  if (given.backend) options.backends = parse_backends("--backend", *given.backend);
  if (given.against) {
    static_cast<void>(parse_choice("--against", *given.against, {"mpi", "gloo", "nccl"}));
    options.against = given.against;
  }
}

void read_checks(const std::string& text, Options& options) {
  options.check_exact = options.check_accuracy = options.check_repeat = false;
  if (text == "off" || text == "0") return;
  for (const std::string& part : split(text)) {
    const std::size_t choice = parse_choice("--check", part, {"exact", "accuracy", "repeat", "all", "1", "off", "0"});
    if (choice > 4) refuse("--check", text, "off is not for lists");
    options.check_exact |= choice == 0 || choice > 2;
    options.check_accuracy |= choice == 1 || choice > 2;
    options.check_repeat |= choice == 2 || choice > 2;
  }
}

void read_method(const Given& given, Options& options) {
  constexpr std::uint64_t many = 1'000'000'000;
  if (given.iters && given.target) refuse("--target", *given.target, fmt::format("excludes -n {}", *given.iters));
  if (given.iters) options.iterations = static_cast<int>(parse_whole("-n", *given.iters, 1, many));
  if (given.warmup_iters) options.warmup = static_cast<int>(parse_whole("-w", *given.warmup_iters, 0, many));
  if (given.target) options.target = parse_fraction("--target", *given.target);
  if (given.max_time) options.max_time = parse_positive("--max-time", *given.max_time);
  if (given.timeout) options.timeout = parse_positive("--timeout", *given.timeout);
  if (given.cache) options.cache = parse_choice("--cache", *given.cache, {"hot", "rotate"}) == 0 ? Cache::hot : Cache::rotate;
  // only these two have input and output of the same size
  const bool places = options.collective == Collective::all_reduce || options.collective == Collective::broadcast;
  options.place = places ? Place::both : Place::out;
  if (given.place) options.place = static_cast<Place>(parse_choice("--place", *given.place, {"out", "in", "both"}));
  if (given.unalign) options.unalign = parse_whole("--unalign", *given.unalign, 0, 4096);
  if (given.check) read_checks(*given.check, options);
  if (given.limit) options.measure_limit = *given.limit == "measure";
  if (given.limit && *given.limit != "measure" && *given.limit != "off") {
    options.limit_gbps = parse_positive("--limit", *given.limit);
  }
  if (given.seed) options.seed = parse_whole("--seed", *given.seed, 0, UINT64_MAX);
}

void read_output(const Given& given, Options& options) {
  options.dry_run = given.dry_run;
  if (given.format)
    options.format = static_cast<Format>(parse_choice("--format", *given.format, {"table", "jsonl", "csv", "md"}));
  if (!given.output) return;
  if (is_op(*given.output) || *given.output == "all") {
    refuse("-o", *given.output, fmt::format("the output file here; for the operation say --op {}", *given.output));
  }
  check_file_name("-o", *given.output);
  options.output = *given.output;
}

}  // namespace

Options parse(int argc, const char* const* argv) {
  const Given given = read_flags(argc, argv);
  Options options;
  read_subject(given, options);
  read_start(given, options);
  read_method(given, options);
  read_output(given, options);
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
