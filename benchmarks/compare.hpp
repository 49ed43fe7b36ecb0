// tnt-bench compare: what became slower between two runs, beyond the noise; for people and for CI.
#pragma once

#include <cstdio>
#include <string>

namespace tnt::bench {

// Matches the rows of two files of JSON lines and prints what changed. A row counts as slower only if b's median is above
// a's by more than the share threshold, and above a's 95th percentile; a result that became wrong counts too. Returns 0, or 1
// if any row is slower or wrong. Throws Failure with code 2 that names file and line if a file cannot be read.
[[nodiscard]] int compare(const std::string& a, const std::string& b, double threshold, std::FILE* out);

// "compare A.jsonl B.jsonl [--threshold 10%]"
[[nodiscard]] int compare_main(int argc, const char* const* argv);

}  // namespace tnt::bench
