// all_reduce among many ranks: any number of them, around the borders of chunks and slices, for every type and operation.
#include "comm/network/network_halving.hpp"

#include <gtest/gtest.h>

#include "support/array.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::disorderly_arrays;
using testing::run_threads;
using testing::tree_sum_of_arrays;

Array result_of(Communicator& comm, const std::vector<Array>& in, tnt_op_t op) {
  Array data = in[static_cast<std::size_t>(comm.rank())];
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
  comm.all_reduce(FusedBuffer({&view, 1}, data.dtype()), op, call());
  return data;
}

class HalvingTest : public ::testing::TestWithParam<int> {
 protected:
  const int ranks = GetParam();
  const std::size_t n = static_cast<std::size_t>(ranks);
};

TEST_P(HalvingTest, HasTheBitsOfTheTree) {
  const std::size_t chunk = std::size_t{128} * 1024 / sizeof(float);
  for (const std::size_t count : {chunk - 1, chunk, chunk + 1, 3 * chunk + 17, std::size_t{600'001}}) {
    if (testing::sanitized && count > 2 * chunk) continue;
    const auto in = disorderly_arrays(n, TNT_FLOAT32, count);
    const Array expected = tree_sum_of_arrays(in);
    run_threads(ranks, [&](Communicator& comm) { EXPECT_EQ(result_of(comm, in, TNT_SUM), expected) << count; });
  }
}

TEST_P(HalvingTest, OfEveryTypeAndOperation) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::size_t count = 140'003 / dtype_size(dtype);
    std::vector<Array> in;
    for (unsigned rank = 0; rank < n; ++rank) in.push_back(testing::exact_values(dtype, count, rank));
    for (const tnt_op_t op : all_ops) {
      const Array expected = testing::reduced(in, op);
      run_threads(ranks, [&](Communicator& comm) {
        EXPECT_EQ(result_of(comm, in, op), expected) << dtype_name(dtype) << " " << op_name(op);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HalvingTest, ::testing::ValuesIn(testing::some_of({8, 9, 11, 13, 16}, {8, 11})));

}  // namespace
}  // namespace tnt
