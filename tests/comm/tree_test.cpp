// Sums over ranks in a tree: the same bits over every transport and with every algorithm, compared with one reference. All
// transports' test programs include this file.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/dtype.hpp"
#include "support/array.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::disorderly_arrays;
using testing::run_threads;
using testing::tree_sum_of_arrays;

void expect_tree_sum(Communicator& comm, const std::vector<Array>& in, const Array& expected) {
  Array data = in[static_cast<std::size_t>(comm.rank())];
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
  comm.all_reduce(tnt::FusedBuffer({&view, 1}, data.dtype()), tree_sum, call());
  EXPECT_EQ(data, expected) << data.count() << " " << dtype_name(data.dtype()) << " on " << comm.size() << " ranks";
}

class TreeTest : public ::testing::TestWithParam<int> {};

// LL, one-shot and two-shot.
TEST_P(TreeTest, HasTheBitsOfTheReference) {
  const auto n = static_cast<std::size_t>(GetParam());
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_BFLOAT16, TNT_FLOAT16, TNT_INT32, TNT_INT64}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{400}, std::size_t{6000}, std::size_t{100'008}}) {
      const auto in = disorderly_arrays(n, dtype, bytes / dtype_size(dtype));
      const Array expected = tree_sum_of_arrays(in);
      run_threads(GetParam(), [&](Communicator& comm) { expect_tree_sum(comm, in, expected); });
    }
  }
}

// A result larger than the caches, and many chunks.
TEST_P(TreeTest, OfMegabytes) {
  const auto in = disorderly_arrays(static_cast<std::size_t>(GetParam()), TNT_FLOAT32, 400'001);
  const Array expected = tree_sum_of_arrays(in);
  run_threads(GetParam(), [&](Communicator& comm) { expect_tree_sum(comm, in, expected); });
}

// Even ranks first. As ranks alternate between two nodes, the ranks of each node are then consecutive, and the node's sum is a
// part of the tree.
TEST_P(TreeTest, GoesByTheRanksOfTheGroup) {
  const auto in = disorderly_arrays(static_cast<std::size_t>(GetParam()), TNT_FLOAT32, 150'001);
  const Array expected = tree_sum_of_arrays(in);
  run_threads(GetParam(), [&](Communicator& comm) {
    const auto sorted = comm.split(0, comm.rank() % 2, call());
    expect_tree_sum(*sorted, in, expected);
    const auto backwards = comm.split(0, -comm.rank(), call());
    expect_tree_sum(*backwards, in, expected);
  });
}

// With a 16-bit wire type each rank's contribution is rounded, then summed in float32 and rounded: for a given number of ranks
// the result is the same everywhere.
TEST_P(TreeTest, WhatTravelsIn16BitsIsRoundedByEachRank) {
  const auto n = static_cast<std::size_t>(GetParam());
  const auto in = disorderly_arrays(n, TNT_FLOAT32, 30'001);
  std::vector<Array> rounded;
  for (const Array& array : in) {
    Array& half = rounded.emplace_back(TNT_BFLOAT16, array.count());
    for (std::size_t i = 0; i < array.count(); ++i) half.set(i, array.get(i));
  }
  const Array expected = tree_sum_of_arrays(rounded);
  run_threads(GetParam(), [&](Communicator& world) {
    const auto comm = world.split(0, world.rank() % 2, call());
    Array data = in[static_cast<std::size_t>(comm->rank())];
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.count(), .dtype = TNT_FLOAT32};
    comm->all_reduce(tnt::FusedBuffer({&view, 1}, TNT_BFLOAT16), tree_sum, call());
    for (std::size_t i = 0; i < data.count(); ++i) ASSERT_EQ(data.get(i), expected.get(i)) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TreeTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3, 4})));

TEST(Tree, IsAnotherCallThanTheSumInRankOrder) {
  const std::string message = testing::common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    std::array<float, 4> data{};
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
    comm.all_reduce(tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), comm.rank() == 1 ? tree_sum : TNT_SUM, call());
  });
  EXPECT_NE(message.find("all_reduce tree sum of 4 float32"), std::string::npos) << message;
  EXPECT_NE(message.find("all_reduce sum of 4 float32"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
