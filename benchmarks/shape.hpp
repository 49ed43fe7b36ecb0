// The meaning of a size for a collective: the elements of a rank's input and output, and the bytes that memory must move.
#pragma once

#include <cstddef>

#include "benchmarks/types.hpp"

namespace tnt::bench {

[[nodiscard]] bool reduces(Collective collective);       // all_reduce, reduce and both reduce_scatter
[[nodiscard]] bool rooted(Collective collective);        // broadcast, reduce, gather and scatter
[[nodiscard]] bool has_in_place(Collective collective);  // whether input and output have the same size

// The buffers of one operation on one rank, in elements. count: the argument of the library's call.
struct Shape {
  std::size_t count = 0;
  std::size_t in = 0;
  std::size_t out = 0;
};

[[nodiscard]] bool parted(Collective collective);  // whether a size is the total over ranks

[[nodiscard]] bool uneven(Collective collective);  // whether the ranks have shares (shares.hpp)

// The elements of so many bytes, as in nccl-tests; rounded down if n ranks cannot divide them.
[[nodiscard]] std::size_t elements_of(Collective collective, std::size_t bytes, std::size_t element, int ranks);
// Of the uneven forms, count is the number of all elements.
[[nodiscard]] Shape shape_of(Collective collective, std::size_t bytes, std::size_t element, int ranks, int rank);

// The minimum number of bytes that the machine's memory must move: each rank's input is read once, and each rank's result is
// written once. S bytes as in nccl-tests, n ranks: 2nS for all_reduce, all_to_all and sendrecv; (n+1)S for all_gather,
// reduce_scatter, reduce and broadcast; 2S for gather and scatter. In place on one rank nothing moves.
[[nodiscard]] double min_traffic(Collective collective, double bytes, int ranks, bool in_place);

}  // namespace tnt::bench
