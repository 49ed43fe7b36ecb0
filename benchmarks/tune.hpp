// tnt-bench tune: measures where one algorithm of the library's all_reduce overtakes another on this host, and writes the file
// that the library reads.
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

// "tune [--ranks N,...] [-o FILE] [--dry-run]". Throws Failure with code 2 for nonsense, with code 0 for the text of --help.
// cores: on which this process may run.
[[nodiscard]] TuneOptions parse_tune(int argc, const char* const* argv, const GetEnvironment& environment, int cores);

// What each algorithm took at each size, and which one is chosen.
void print_times(const Measured& measured, const Tuning& chosen, int ranks, std::FILE* out);

// Puts the file in the place of an old one at once: a rank that reads it sees either.
void write_file(const std::string& path, const std::string& text);

[[nodiscard]] int tune_main(int argc, const char* const* argv);

}  // namespace tnt::bench
