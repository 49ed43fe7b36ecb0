// The candidates of tnt-bench tune, and the choice of borders from their times. Without ranks or communication.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/tuning_table.hpp"

namespace tnt::bench {

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

}  // namespace tnt::bench
