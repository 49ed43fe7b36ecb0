// The command line of tnt-bench: the options, and one clear line for each error.
#pragma once

#include "benchmarks/types.hpp"

namespace tnt::bench {

constexpr int max_ranks = 512;
constexpr int max_simulated_ranks = 65536;

// Checks everything that can be checked before ranks start and memory is allocated. Throws Failure with code 2 that names flag
// and value, or with code 0 the text of --help or --version for standard output.
[[nodiscard]] Options parse(int argc, const char* const* argv);

// Checks what depends on the number of ranks; parse calls it if --ranks is given.
void check_ranks(const Options& options, int ranks);

}  // namespace tnt::bench
