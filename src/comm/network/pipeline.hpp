// Chunks of a collective in flight: while one is packed, reduced or unpacked, the network carries others.
#pragma once

#include <cstddef>

namespace tnt {

inline constexpr std::size_t chunks_in_flight = 3;

// Every chunk goes through begin, turn and end, in this order on all ranks: begin(i), turn(i - 1), end(i - 2). first_begun is
// called once, after the first begin or, without chunks, at once.
template <typename Stages, typename FirstBegun>
void run_pipeline(Stages& stages, std::size_t chunks, FirstBegun&& first_begun) {
  if (chunks == 0) return first_begun();
  for (std::size_t i = 0; i < chunks + 2; ++i) {
    if (i < chunks) stages.begin(i);
    if (i == 0) first_begun();
    if (i >= 1 && i <= chunks) stages.turn(i - 1);
    if (i >= 2) stages.end(i - 2);
  }
}

}  // namespace tnt
