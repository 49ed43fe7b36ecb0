// The flags of tnt-bench and its help text, as text without interpretation.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tnt::bench {

using Text = std::optional<std::string>;

// The command line as typed.
struct Flags {
  std::string collective = "all_reduce";
  Text minbytes, maxbytes, stepfactor, stepbytes, sizes;
  Text datatype, op, root, model, tensors, fusion_threshold, wire_dtype, determinism, compute_ms;
  Text ranks, backend, platform, against;
  Text iters, warmup_iters, target, max_time, timeout, cache, place, unalign, check, limit, seed;
  Text output, format;
  bool dry_run = false;
};

// The same for tnt-bench compare and tnt-bench tune.
struct CompareFlags {
  std::vector<std::string> files{};  // two
  std::string threshold = "10%";
};
struct TuneFlags {
  Text ranks, output;
  bool dry_run = false;
};

// Each throws Failure: with code 2 for an unknown flag, with code 0 for the text of --help and --version.
[[nodiscard]] Flags read_flags(int argc, const char* const* argv);
[[nodiscard]] CompareFlags read_compare_flags(int argc, const char* const* argv);
[[nodiscard]] TuneFlags read_tune_flags(int argc, const char* const* argv);

}  // namespace tnt::bench
