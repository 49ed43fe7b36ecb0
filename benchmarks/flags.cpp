#include "benchmarks/flags.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

// Adds the flags of one group of the help text.
class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}
  void add(const char* names, Text& text, const char* type, const char* help) {
    app_.add_option(names, text, help)->type_name(type)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* name_;
};

void add_subject_flags(CLI::App& app, Flags& flags) {
  app.add_option("COLLECTIVE", flags.collective,
                 "all_reduce (default), reduce_scatter, all_gather, broadcast,\n"
                 "all_to_all, reduce, gather, scatter, sendrecv (to the next rank),\nbarrier;\n"
                 "all_gather_v, reduce_scatter_v, all_to_all_v: with a block for rank r in\nproportion to r + 1;\n"
                 "bucket: pack, reduce and unpack a model's gradients;\n"
                 "overlap: the same during a synthetic backward pass")
      ->type_name(" ");
  Group group(app, "What is measured");
  group.add("-d,--datatype", flags.datatype, "LIST",
            "float32 (default), float64, float16, bfloat16, int8, uint8, int32,\nint64, uint32, uint64, all; also f32, float, "
            "half, ...");
  group.add("-O,--op", flags.op, "LIST",
            "sum (default), avg, min, max, prod; of integers also land, lor, lxor,\nband, bor, bxor; all: those that the types "
            "have; it is -o in nccl-tests");
  group.add("-r,--root", flags.root, "RANK", "of broadcast, reduce, gather and scatter; default 0");
  group.add("--model", flags.model, "NAME", "of bucket and overlap: resnet50 (default), transformer_big, bert_large");
  group.add("--tensors", flags.tensors, "N", "of bucket and overlap with sizes: so many equal tensors; default 8");
  group.add("--fusion-threshold", flags.fusion_threshold, "SIZE",
            "of bucket and overlap: where a bucket is closed; 0: one tensor each;\ndefault: the library's");
  group.add("--wire-dtype", flags.wire_dtype, "DTYPE",
            "of bucket and overlap: send the float32 gradients as bfloat16 or\nfloat16; default float32");
  group.add(
      "--determinism", flags.determinism, "RUNS",
      "of bucket and overlap: gradients have the same bits in every run\n(run, default), or on any number of ranks (ranks)");
  group.add("--compute-ms", flags.compute_ms, "MS", "of overlap: how long the backward pass computes; default 50");
}

void add_size_flags(CLI::App& app, Flags& flags) {
  Group group(app, "Sizes");
  group.add("-b,--minbytes", flags.minbytes, "SIZE",
            "smallest size: 4, 1K, 1.5M, 1G; binary suffixes; default one element,\n4K where a size is the total over ranks");
  group.add("-e,--maxbytes", flags.maxbytes, "SIZE", "largest size; default 64M");
  group.add("-f,--stepfactor", flags.stepfactor, "FACTOR", "from one size to the next; default 4");
  group.add("-i,--stepbytes", flags.stepbytes, "SIZE", "steps by addition instead");
  group.add("--sizes", flags.sizes, "LIST|@MODEL|FILE",
            "1K,1M; @resnet50, @transformer_big, @bert_large: the sizes of their\ngradients; a file: one size a line, perhaps "
            "a label behind it");
}

void add_start_flags(CLI::App& app, Flags& flags) {
  Group group(app, "Who takes part");
  group.add("--ranks", flags.ranks, "N",
            "start N ranks on this machine; default: the ranks that the launcher,\nmpirun or srun started");
  group.add(
      "--backend", flags.backend, "LIST",
      "shm (default), mpi, mpi:native, mpi:auto, hierarchical, nccl:\nin turn, side by side; simulated: in simulated time");
  group.add("--platform", flags.platform, "FILE", "of --backend simulated: nodes and links, a platform file of SimGrid");
  group.add("--against", flags.against, "LIBRARY",
            "mpi, gloo (all_reduce only) or nccl: measure it in the same run, with\nthe ratio of times; above 1: ours is "
            "faster. Of --backend simulated: the\nalgorithms of ompi, mpich, mvapich2 or impi (all_reduce only)");
}

void add_method_flags(CLI::App& app, Flags& flags) {
  Group group(app, "Method");
  group.add("-n,--iters", flags.iters, "N", "iterations of each row; default: as many as --target needs");
  group.add("-w,--warmup_iters", flags.warmup_iters, "N", "iterations before, for each row; default 5");
  group.add("--target", flags.target, "SHARE", "half-width of the median's 95 % confidence interval: 2% (default)\nor 0.02");
  group.add("--max-time", flags.max_time, "SECONDS", "for each row; default 1");
  group.add("-T,--timeout", flags.timeout, "SECONDS", "for any wait for other ranks; default 60");
  group.add("--cache", flags.cache, "KIND",
            "rotate (default): through more memory than the caches hold;\nhot: the same buffers each time");
  group.add("--place", flags.place, "WHERE", "out, in or both (default)");
  group.add("-u,--unalign", flags.unalign, "N", "shift the buffers by N elements; default 0");
  group.add("-c,--check", flags.check, "LIST|N",
            "exact, accuracy, repeat; all (default), off; N: all of them N times,\n0: off");
  group.add("--limit", flags.limit, "GB/s", "what the memory can do, for limit%: measure (default), a number, off");
  group.add("--seed", flags.seed, "N", "of the random input; default 1");
}

void add_output_flags(CLI::App& app, Flags& flags) {
  Group group(app, "Output");
  group.add("-o,--output", flags.output, "FILE", "default: standard output. -o is nccl-tests' operation: here -O, --op");
  group.add("--format", flags.format, "FORMAT", "table (default), jsonl, csv, md");
  app.add_flag("--dry-run", flags.dry_run, "print what would be measured and the memory it takes, and stop")->group("Output");
  app.set_help_flag("-h,--help", "print this and stop")->group("Output");
  app.set_version_flag("--version", fmt::format("tnt-bench {}", tnt_version()), "print the version and stop")->group("Output");
}

constexpr const char* footer =
    "Then: tnt-bench compare A.jsonl B.jsonl [--threshold 10%]   what became slower; exit code 1 if anything did\n"
    "      tnt-bench plot A.jsonl ... -o bench.png               latency and bandwidth over size\n"
    "      tnt-bench tune                                        choose algorithms for this host\n"
    "Flags of nccl-tests that change nothing here are taken: -g 1 -t 1 -z 0 -R 0 -G 0 -m 1 -a 1 -p 0 -C 0 -D 0\n"
    "For example:\n"
    "      tnt-bench all_reduce --ranks 2 --against mpi -b 4 -e 64M -f 4 --format jsonl -o cpu.jsonl\n"
    "      tnt-bench bucket --ranks 2 --model bert_large\n";

// Flags of nccl-tests that are taken with the values that change nothing here, as scripts give them all.
struct Habit {
  const char* flag;
  const char* names;
  std::vector<std::string> taken;
  const char* reason;
  std::string given{};
};

std::vector<Habit> habits() {
  const char* const ranks = "ranks are started by --ranks N, the launcher, mpirun or srun, and each has one thread and one GPU";
  return {{"-g", "-g,--ngpus", {"1"}, ranks},
          {"-t", "-t,--nthreads", {"1"}, ranks},
          {"-z", "-z,--blocking", {"0"}, "a call with a stream never waits, and one without always does"},
          {"-R", "-R,--local_register", {"0"}, "buffers are not registered"},
          {"-G", "-G,--cudagraph", {"0"}, "graphs are measured by tools/gpu-check"},
          {"-m", "-m,--agg_iters", {"1"}, "calls are not grouped"},
          {"-a", "-a,--average", {"1", "3"}, "a time is that of the slowest rank (3, or 1 by habit)"},
          {"-p", "-p,--parallel_init", {"0"}, "each rank has one communicator"},
          {"-C", "-C,--report_cputime", {"0"}, "times are those of the clock"},
          {"-D", "-D,--device_implementation", {"0"}, "NCCL's device API is not used"}};
}

void refuse_habits(const std::vector<Habit>& given) {
  for (const Habit& habit : given) {
    if (habit.given.empty() || std::ranges::find(habit.taken, habit.given) != habit.taken.end()) continue;
    throw Failure(fmt::format("{} {}: only {} is known here: {}", habit.flag, habit.given, habit.taken.front(), habit.reason),
                  2);
  }
}

void refuse_extras(const std::vector<std::string>& extras) {
  if (extras.empty()) return;
  const std::string& word = extras.front();
  const char* what = word.starts_with('-') ? "no such flag" : "one word too many";
  throw Failure(fmt::format("{}: {}; see tnt-bench --help", word, what), 2);
}

// Errors of compare and tune say where to find help.
void parse_command(CLI::App& app, const char* command, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw Failure(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    throw Failure(fmt::format("{}: {}; see tnt-bench {} --help", command, error.what(), command), 2);
  }
}

}  // namespace

Flags read_flags(int argc, const char* const* argv) {
  Flags flags;
  CLI::App app("tnt-bench: how fast collectives are on this machine, and whether their results are right", "tnt-bench");
  app.get_formatter()->column_width(32);
  app.footer(footer);
  app.allow_extras();
  add_subject_flags(app, flags);
  add_size_flags(app, flags);
  add_start_flags(app, flags);
  add_method_flags(app, flags);
  add_output_flags(app, flags);
  std::vector<Habit> of_nccl_tests = habits();
  for (Habit& habit : of_nccl_tests) app.add_option(habit.names, habit.given)->group("");  // not in the help
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw Failure(app.help(), 0);
  } catch (const CLI::CallForVersion& version) {
    throw Failure(version.what(), 0);
  } catch (const CLI::ParseError& error) {
    throw Failure(error.what(), 2);
  }
  refuse_extras(app.remaining());
  refuse_habits(of_nccl_tests);
  return flags;
}

CompareFlags read_compare_flags(int argc, const char* const* argv) {
  CompareFlags flags;
  CLI::App app(
      "tnt-bench compare: what became slower from A to B, beyond the noise. Exit code 0: nothing, 1: something, or wrong "
      "results, 2: a file cannot be read",
      "tnt-bench compare");
  app.add_option("FILES", flags.files, "A.jsonl B.jsonl: two outputs of tnt-bench --format jsonl")->expected(2)->required();
  app.add_option("--threshold", flags.threshold, "how much slower counts: 10% (default) or 0.1")->type_name("SHARE");
  parse_command(app, "compare", argc, argv);
  return flags;
}

TuneFlags read_tune_flags(int argc, const char* const* argv) {
  TuneFlags flags;
  std::string ranks;
  std::string output;
  CLI::App app(
      "tnt-bench tune: which algorithm of all_reduce is fastest on this host, by size and number of ranks. Takes less than "
      "half\n"
      "a minute and writes the file that every later job reads; the machine should have nothing else to do meanwhile",
      "tnt-bench tune");
  const CLI::Option* const given_ranks =
      app.add_option("--ranks", ranks, "numbers of ranks: 2,4; default: 2 and all cores, at least 4")->type_name("LIST");
  const CLI::Option* const given_output =
      app.add_option("-o,--output", output, "default: the file of this host in the user's cache")->type_name("FILE");
  app.add_flag("--dry-run", flags.dry_run, "print what would be measured, and stop");
  app.set_help_flag("-h,--help", "print this and stop");
  parse_command(app, "tune", argc, argv);
  if (given_ranks->count() > 0) flags.ranks = ranks;
  if (given_output->count() > 0) flags.output = output;
  return flags;
}

}  // namespace tnt::bench
