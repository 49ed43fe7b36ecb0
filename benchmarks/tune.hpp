// tnt-bench tune: measures the sizes at which one algorithm of the library's all_reduce becomes faster than another on this
// host, and writes the file that the library reads.
#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/start.hpp"
#include "benchmarks/tuning_table.hpp"

namespace tnt::bench {

// The candidates, and the choice of borders from their times. Without ranks or communication.
//
// A tuning that forces one algorithm at all sizes that it supports.
struct Candidate {
  std::string name;  // as the table shows it
  Tuning tuning;
  std::vector<std::size_t> sizes;  // bytes, ascending
};

// The algorithms, each at the sizes at which it may win. The LL protocol supports Tuning::max_ll_ranks ranks.
[[nodiscard]] std::vector<Candidate> candidates_for(int ranks);

using SizeTimes = std::map<std::size_t, double>;    // microseconds by bytes
using Measured = std::map<std::string, SizeTimes>;  // by the candidate's name

// The number of sizes, in ascending order, that go to `below`; the others go to `above`. At least `least`. This border saves
// the most time, where each size that it moves away from `standard` must save 5 %.
[[nodiscard]] std::size_t choose_border(const SizeTimes& below, const SizeTimes& above, std::size_t standard,
                                        std::size_t least);

[[nodiscard]] Tuning choose(const Measured& measured);

// The name of the candidate that the library will use.
[[nodiscard]] std::string algorithm_at(const Tuning& tuning, int ranks, std::size_t bytes);

// The measurement: candidates take turns in forked jobs, each with its own tuning.
struct Rounds {
  Measured medians;  // over rounds, of the medians of each round
  int rounds = 0;
};

// Measures the candidates in turn, A B C A B C, until max_rounds or the seconds are reached; at least one round, which takes
// longer with many ranks. Throws Failure if there is not enough memory or a rank fails.
[[nodiscard]] Rounds measure_candidates(const std::vector<Candidate>& candidates, int ranks, double seconds, int max_rounds);

// Bytes of each rank's input, and of its output: several times the largest size, so that a buffer has left the core's caches
// when it is used again.
[[nodiscard]] std::size_t tune_pool_bytes() noexcept;

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
