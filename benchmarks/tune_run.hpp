// The measurement of tnt-bench tune: candidates take turns in forked jobs, each with its tuning from rank 0 on.
#pragma once

#include <cstddef>
#include <vector>

#include "benchmarks/tune_choice.hpp"

namespace tnt::bench {

struct Rounds {
  Measured medians;  // over rounds, of each round's medians
  int rounds = 0;
};

// Measures the candidates A B C A B C, until there were max_rounds or the seconds are over; at least one round, so that many
// ranks take longer. Throws Failure if there is no memory for so many ranks, or if they fail.
[[nodiscard]] Rounds measure_candidates(const std::vector<Candidate>& candidates, int ranks, double seconds, int max_rounds);

// Bytes of each rank's input, and of its output: several of the largest size, so that a buffer has left the caches that belong
// to a core when its turn comes again.
[[nodiscard]] std::size_t tune_pool_bytes() noexcept;

}  // namespace tnt::bench
