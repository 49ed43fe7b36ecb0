// What a size means for a collective: how many elements go in and come out on a rank, and how many bytes memory must move.
#pragma once

#include <cstddef>

#include "benchmarks/types.hpp"

namespace tnt::bench {

[[nodiscard]] bool reduces(Collective collective);  // whether it has an op: all_reduce and reduce_scatter

// One rank's buffers of one operation, in elements. count is what the library's call gets.
struct Shape {
  std::size_t count = 0;
  std::size_t in = 0;
  std::size_t out = 0;
};

[[nodiscard]] bool parted(Collective collective);  // whether a size is the total over ranks, of which each has its part

// bytes as nccl-tests counts them; sizes that n ranks do not divide are rounded down.
[[nodiscard]] Shape shape_of(Collective collective, std::size_t bytes, std::size_t element, int ranks);

// Bytes that the memory of the machine must move at least: each rank's input is read once, each rank's result written once. S
// bytes as nccl-tests counts them, n ranks: all_reduce, all_to_all and sendrecv 2nS; all_gather, reduce_scatter and broadcast
// (n+1)S. In place on one rank nothing has to move.
[[nodiscard]] double min_traffic(Collective collective, double bytes, int ranks, bool in_place);

}  // namespace tnt::bench
