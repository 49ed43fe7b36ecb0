// tnt-bench tune: measures the sizes at which one algorithm of the library's all_reduce becomes faster than another on this
// host, and writes the file that the library reads.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/start.hpp"
#include "benchmarks/tune_choice.hpp"

namespace tnt::bench {

struct TuneOptions {
  std::vector<int> ranks{};
  std::string output{};
  bool dry_run = false;
};

// "tune [--ranks N,...] [-o FILE] [--dry-run]". Throws Failure with code 2 for an error, with code 0 for the text of --help.
// cores: the cores that this process may use.
[[nodiscard]] TuneOptions parse_tune(int argc, const char* const* argv, const GetEnvironment& environment, int cores);

// Prints the times of each algorithm at each size, and the choice.
void print_times(const Measured& measured, const Tuning& chosen, int ranks, std::FILE* out);

// Replaces the file atomically: a rank that reads it sees the old or the new content.
void write_file(const std::string& path, const std::string& text);

[[nodiscard]] int tune_main(int argc, const char* const* argv);

}  // namespace tnt::bench
