// tnt-bench compare: lists what became slower between two runs, beyond the noise, for people and for CI.
#pragma once

#include <cstdio>
#include <string>

namespace tnt::bench {

// Matches the rows of two JSON Lines files and prints the changes. A row counts as slower if the median of b is above the
// median of a by more than the share threshold, and above the 95th percentile of a. A result that became wrong counts, too.
// Returns 1 if a row is slower or wrong, else 0. Throws Failure with code 2 that names file and line if a file cannot be read.
[[nodiscard]] int compare(const std::string& a, const std::string& b, double threshold, std::FILE* out);

// "compare A.jsonl B.jsonl [--threshold 10%]"
[[nodiscard]] int compare_main(int argc, const char* const* argv);

}  // namespace tnt::bench
