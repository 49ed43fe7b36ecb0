// The command line of tnt-bench: what may be given, and the one clear line that says what is wrong with it.
#pragma once

#include "benchmarks/types.hpp"

namespace tnt::bench {

constexpr int max_ranks = 512;

// Checks everything that can be known before ranks are started and memory is allocated. Throws Failure with code 2 that names
// flag and value; with code 0 the text that --help or --version asked for, meant for standard output.
[[nodiscard]] Options parse(int argc, const char* const* argv);

// The same for what depends on the number of ranks; parse has called it if --ranks was given.
void check_ranks(const Options& options, int ranks);

}  // namespace tnt::bench
