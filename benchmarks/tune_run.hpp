// The measurement of tnt-bench tune: candidates take turns in forked jobs, each with its own tuning.
#pragma once

#include <cstddef>
#include <vector>

#include "benchmarks/tune_choice.hpp"

namespace tnt::bench {

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

}  // namespace tnt::bench
