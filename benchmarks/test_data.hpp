// Test inputs whose result every rank can compute alone: exact inputs, whose sums are not rounded in any order, and random
// ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// An operation to check, from one rank's view. Another seed gives other data.
struct Problem {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int rank = 0;
  std::size_t count = 0;  // as in the library's call; of the uneven forms, of all ranks
  tnt_dtype_t dtype = TNT_FLOAT32;
  tnt_op_t op = TNT_SUM;
  int root = 0;
  std::uint64_t seed = 1;
};

[[nodiscard]] std::size_t in_count(const Problem& problem);
[[nodiscard]] std::size_t out_count(const Problem& problem);

// Element i of a rank's input. Exact: small integers, of which at most eight ranks have values other than 0 (prod: 1) at one
// index, so that sums, averages and products fit into every type's mantissa in any order. Random: between -1 and 1, rounded to
// the type.
[[nodiscard]] double exact_input(const Problem& problem, int rank, std::size_t i);
[[nodiscard]] double random_input(const Problem& problem, int rank, std::size_t i);

using Input = double (*)(const Problem&, int rank, std::size_t i);

// Element i of this rank's result, reduced in float64 in rank order.
[[nodiscard]] double expected(const Problem& problem, Input input, std::size_t i);

// The origin of element i of the result: the element of the ranks' inputs, and the rank if nothing is reduced.
struct Origin {
  std::size_t element;
  int rank;  // -1: all ranks
};
[[nodiscard]] Origin origin(const Problem& problem, std::size_t i);

void fill(const Problem& problem, Input input, void* buffer);

}  // namespace tnt::bench
