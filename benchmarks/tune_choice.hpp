// What tnt-bench tune measures, and which borders follow from the times: no ranks in here.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/shm/tuning.hpp"

namespace tnt::bench {

// A tuning that makes the library take one algorithm at all the sizes, up to where it has one.
struct Candidate {
  std::string name;  // as the table shows it
  Tuning tuning;
  std::vector<std::size_t> sizes;  // bytes, ascending
};

// The algorithms at the sizes at which each may win. More than LLBuffer::max_members ranks have no LL protocol.
[[nodiscard]] std::vector<Candidate> candidates_for(int ranks);

using SizeTimes = std::map<std::size_t, double>;    // microseconds by bytes
using Measured = std::map<std::string, SizeTimes>;  // by the candidate's name

// How many of the sizes, ascending, go to `below`, the others to `above`; at least `least`. It is the border that saves most,
// where each size that it moves away from `standard` has to be worth 5 %.
[[nodiscard]] std::size_t choose_border(const SizeTimes& below, const SizeTimes& above, std::size_t standard,
                                        std::size_t least);

[[nodiscard]] Tuning choose(const Measured& measured);

// The name of the candidate that the library will take.
[[nodiscard]] std::string algorithm_at(const Tuning& tuning, int ranks, std::size_t bytes);

}  // namespace tnt::bench
