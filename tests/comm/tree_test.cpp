// The order in which ranks are summed: the same bits over every transport, by every algorithm and in every run. The test
// programs of all transports have this file, and one reference.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "common/dtype.hpp"
#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::disorderly_arrays;
using testing::run_threads;
using testing::summed_groups;
using testing::tree_sum_of_arrays;

void expect_sum(Communicator& comm, const std::vector<Array>& in, const Array& expected) {
  Array data = in[static_cast<std::size_t>(comm.rank())];
  const TensorView view{.in = data.data(), .out = data.data(), .count = data.count()};
  all_reduce(comm, tnt::FusedBuffer({&view, 1}, data.dtype()), TNT_SUM, call());
  EXPECT_EQ(data, expected) << data.count() << " " << dtype_name(data.dtype()) << " on " << comm.size() << " ranks";
}

class TreeTest : public ::testing::TestWithParam<int> {
 protected:
  const std::size_t n = static_cast<std::size_t>(GetParam());
};

// LL, one-shot and two-shot; with the handshake and in chunks.
TEST_P(TreeTest, HasTheBitsOfTheReference) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_BFLOAT16, TNT_FLOAT16, TNT_INT32, TNT_INT64}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{400}, std::size_t{6000}, std::size_t{100'008}}) {
      const auto in = disorderly_arrays(n, dtype, bytes / dtype_size(dtype));
      const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
      run_threads(GetParam(), [&](Communicator& comm) { expect_sum(comm, in, expected); });
    }
  }
}

// A contribution is rounded before the sum; 0.75 of 16 bits has one right value.
TEST_P(TreeTest, Of16BitContributionsThatAreScaled) {
  for (const std::size_t count : {std::size_t{200}, std::size_t{50'004}}) {
    const auto in = disorderly_arrays(n, TNT_BFLOAT16, count);
    std::vector<Array> scaled = in;
    for (Array& array : scaled) {
      for (std::size_t i = 0; i < count; ++i) array.set(i, 0.75 * array.get(i));
    }
    const Array expected = tree_sum_of_arrays(scaled, summed_groups(GetParam()));
    run_threads(GetParam(), [&](Communicator& comm) {
      Array data = in[static_cast<std::size_t>(comm.rank())];
      const TensorView view{.in = data.data(), .out = data.data(), .count = count, .scale = 0.75};
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_BFLOAT16), TNT_SUM, call());
      EXPECT_EQ(data, expected);
    });
  }
}

// A result past the caches, and many chunks.
TEST_P(TreeTest, OfMegabytes) {
  const auto in = disorderly_arrays(n, TNT_FLOAT32, testing::effort(400'001, 150'001));
  const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
  run_threads(GetParam(), [&](Communicator& comm) { expect_sum(comm, in, expected); });
}

TEST_P(TreeTest, OfReduceScatter) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{30'001}}) {
    const auto in = disorderly_arrays(n, TNT_FLOAT32, count * n);
    const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
    run_threads(GetParam(), [&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      Array part(TNT_FLOAT32, count);
      reduce_scatter(comm, in[self].data(), part.data(), count, TNT_FLOAT32, TNT_SUM, call());
      EXPECT_EQ(part, expected.part(self * count, count));
    });
  }
}

// As all_reduce, on the root alone; from the gathered handshake to many chunks.
TEST_P(TreeTest, OfReduceToARoot) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16}) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{2'000}, std::size_t{150'001}}) {
      const auto in = disorderly_arrays(n, dtype, count);
      const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
      run_threads(GetParam(), [&](Communicator& comm) {
        const int root = static_cast<int>(count) % comm.size();
        Array out(dtype, count);
        reduce(comm, in[static_cast<std::size_t>(comm.rank())].data(), comm.rank() == root ? out.data() : nullptr, count, dtype,
               TNT_SUM, root, call());
        if (comm.rank() == root) {
          EXPECT_EQ(out, expected) << count << " " << dtype_name(dtype);
        }
      });
    }
  }
}

TEST_P(TreeTest, OfReduceScatterOfUnevenBlocks) {
  const auto in = disorderly_arrays(n, TNT_FLOAT32, n * (n + 1) / 2 * 3001);
  const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < n; ++rank) counts.push_back((rank + 1) * 3001);
  run_threads(GetParam(), [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Array part(TNT_FLOAT32, counts[self]);
    reduce_scatter_v(comm, in[self].data(), part.data(), counts, TNT_FLOAT32, TNT_SUM, call());
    EXPECT_EQ(part, expected.part(self * (self + 1) / 2 * 3001, counts[self]));
  });
}

// From the gathered handshake to many chunks; rank 1 needs nothing. One tensor's result takes the place of its input.
TEST_P(TreeTest, OfSumsThatTheirOwnersNeed) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16}) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{1'501}, std::size_t{20'001}}) {
      const auto in = disorderly_arrays(n, dtype, (n + 1) * count);
      const Array expected = tree_sum_of_arrays(in, summed_groups(GetParam()));
      std::vector<int> owners{0};  // rank 0 owns two tensors
      for (int rank = 0; rank < GetParam(); ++rank) owners.push_back(rank == 1 ? 0 : rank);
      run_threads(GetParam(), [&](Communicator& comm) {
        const Array& own = in[static_cast<std::size_t>(comm.rank())];
        Array out(dtype, own.count());
        std::vector<TensorView> views;
        for (std::size_t i = 0; i < owners.size(); ++i) {
          std::byte* const to = static_cast<std::byte*>(out.data()) + i * count * dtype_size(dtype);
          const void* from = static_cast<const std::byte*>(own.data()) + i * count * dtype_size(dtype);
          if (i == 0) from = std::memcpy(to, from, count * dtype_size(dtype));
          views.push_back({.in = from, .out = owners[i] == comm.rank() ? to : nullptr, .count = count});
        }
        reduce_to_owners(comm, tnt::FusedBuffer(views, dtype), owners, TNT_SUM, call());
        for (std::size_t i = 0; i < owners.size(); ++i) {
          const Array wanted = owners[i] == comm.rank() ? expected.part(i * count, count)
                               : i == 0                 ? own.part(0, count)
                                                        : Array(dtype, count);
          EXPECT_EQ(out.part(i * count, count), wanted) << "tensor " << i << " of " << count << " " << dtype_name(dtype);
        }
      });
    }
  }
}

// Even ranks first: with the ranks in turn on two nodes each node's are consecutive then, and if they are 2^k, their sum is a
// part of the tree. Backwards they are in turn again.
TEST_P(TreeTest, GoesByTheRanksOfTheGroup) {
  const auto in = disorderly_arrays(n, TNT_FLOAT32, 150'001);
  const Array flat = tree_sum_of_arrays(in);
  const Array by_nodes = tree_sum_of_arrays(in, summed_groups(GetParam()));
  run_threads(GetParam(), [&](Communicator& comm) {
    const auto sorted = comm.split(0, comm.rank() % 2, call());
    if (comm.size() != 6) expect_sum(*sorted, in, flat);
    const auto backwards = comm.split(0, -comm.rank(), call());
    expect_sum(*backwards, in, by_nodes);
  });
}

TEST_P(TreeTest, IsOverRanksAloneIfThatIsAsked) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{50'001}}) {
    const auto in = disorderly_arrays(n, TNT_FLOAT32, count);
    const Array expected = tree_sum_of_arrays(in);
    run_threads(GetParam(), [&](Communicator& comm) { expect_sum(*comm.duplicate_with_flat_sums(call()), in, expected); });
  }
}

// What travels in 16 bits is rounded by each rank, summed in float32 and rounded.
TEST_P(TreeTest, WhatTravelsIn16BitsIsRoundedByEachRank) {
  if (summed_groups(GetParam()).size() > 1) GTEST_SKIP() << "a node's sum is rounded: hierarchical_communicator_test.cpp";
  const auto in = disorderly_arrays(n, TNT_FLOAT32, 30'001);
  std::vector<Array> rounded;
  for (const Array& array : in) {
    Array& half = rounded.emplace_back(TNT_BFLOAT16, array.count());
    for (std::size_t i = 0; i < array.count(); ++i) half.set(i, array.get(i));
  }
  const Array expected = tree_sum_of_arrays(rounded);
  run_threads(GetParam(), [&](Communicator& comm) {
    Array data = in[static_cast<std::size_t>(comm.rank())];
    const TensorView view{.in = data.data(), .out = data.data(), .count = data.count(), .dtype = TNT_FLOAT32};
    all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_BFLOAT16), TNT_SUM, call());
    for (std::size_t i = 0; i < data.count(); ++i) ASSERT_EQ(data.get(i), expected.get(i)) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TreeTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 5, 6, 7, 8}, {3, 4})));

}  // namespace
}  // namespace tnt
