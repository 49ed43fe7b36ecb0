// reduce_scatter, all_gather and reduce over a network by each of their algorithms, on any number of ranks: for every type and
// operation, with equal and uneven blocks, around the borders of chunks, with the bits of the tree; in place; and failing
// calls.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "comm/network/communicator.hpp"
#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::common_error;
using testing::disorderly_arrays;
using testing::exact_values;
using testing::run_threads;
using testing::tree_sum_of_arrays;

std::vector<int> numbers_of_ranks() { return testing::some_of({2, 3, 4, 5, 7, 8, 13, 16}, {3, 8}); }

void force(Communicator& comm, const NetworkCommunicator::Forced& algorithms) {
  dynamic_cast<NetworkCommunicator&>(comm).force(algorithms);
}

// Blocks of 0, 1, 2 ... units, and where each begins.
std::vector<std::size_t> uneven(std::size_t n, std::size_t unit) {
  std::vector<std::size_t> counts;
  for (std::size_t member = 0; member < n; ++member) counts.push_back((member * 5 + 3) % n * unit);
  return counts;
}

template <typename Algorithm>
struct Case {
  Algorithm algorithm;
  int ranks;
};

template <typename Algorithm>
std::vector<Case<Algorithm>> cases(std::initializer_list<Algorithm> algorithms) {
  std::vector<Case<Algorithm>> result;
  for (const Algorithm algorithm : algorithms) {
    for (const int ranks : numbers_of_ranks()) result.push_back({algorithm, ranks});
  }
  return result;
}

class ReduceScatterTest : public ::testing::TestWithParam<Case<ReduceScatterAlgorithm>> {
 protected:
  void take(Communicator& comm) const { force(comm, {.reduce_scatter = GetParam().algorithm}); }
  const int ranks = GetParam().ranks;
  const std::size_t n = static_cast<std::size_t>(ranks);
};

TEST_P(ReduceScatterTest, HasTheBitsOfTheTreeAroundEveryBorder) {
  std::vector<std::size_t> counts{1, 15, 256, 257, 32'768 / n + 1};
  if (!testing::sanitized) counts.push_back(1'000'001 / n);
  bool in_place = false;
  for (const std::size_t count : counts) {
    const auto in = disorderly_arrays(n, TNT_FLOAT32, count * n);
    const Array expected = tree_sum_of_arrays(in);
    run_threads(ranks, [&](Communicator& comm) {
      take(comm);
      const auto self = static_cast<std::size_t>(comm.rank());
      Array data = in[self];
      Array out(TNT_FLOAT32, count);
      void* to = in_place ? static_cast<float*>(data.data()) + self * count : out.data();
      reduce_scatter(comm, data.data(), to, count, TNT_FLOAT32, TNT_SUM, call());
      EXPECT_EQ(in_place ? data.part(self * count, count) : out, expected.part(self * count, count)) << count;
    });
    in_place = !in_place;
  }
}

TEST_P(ReduceScatterTest, OfEveryTypeAndOperation) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::size_t count = 9'003 / dtype_size(dtype);
    std::vector<Array> in;
    for (unsigned rank = 0; rank < n; ++rank) in.push_back(exact_values(dtype, count * n, rank));
    const auto floats = disorderly_arrays(n, dtype, count * n);
    const Array sum = tree_sum_of_arrays(floats);
    std::vector<Array> expected;
    for (const tnt_op_t op : all_ops) expected.push_back(testing::reduced(in, op));
    run_threads(ranks, [&](Communicator& comm) {
      take(comm);
      const auto self = static_cast<std::size_t>(comm.rank());
      Array out(dtype, count);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (n > 8 && all_ops[i] == TNT_PROD) continue;  // not exact in every type
        reduce_scatter(comm, in[self].data(), out.data(), count, dtype, all_ops[i], call());
        EXPECT_EQ(out, expected[i].part(self * count, count)) << dtype_name(dtype) << " " << op_name(all_ops[i]);
      }
      reduce_scatter(comm, floats[self].data(), out.data(), count, dtype, TNT_SUM, call());
      EXPECT_EQ(out, sum.part(self * count, count)) << dtype_name(dtype);
    });
  }
}

TEST_P(ReduceScatterTest, OfUnevenBlocks) {
  for (const std::size_t unit : {std::size_t{1}, std::size_t{2'001}}) {
    const auto counts = uneven(n, unit);
    const Blocks blocks(counts);
    const auto in = disorderly_arrays(n, TNT_BFLOAT16, blocks.total());
    const Array expected = tree_sum_of_arrays(in);
    run_threads(ranks, [&](Communicator& comm) {
      take(comm);
      const auto self = static_cast<std::size_t>(comm.rank());
      Array out(TNT_BFLOAT16, counts[self]);
      reduce_scatter_v(comm, in[self].data(), out.data(), counts, TNT_BFLOAT16, TNT_SUM, call());
      EXPECT_EQ(out, expected.part(blocks.begin(self), counts[self]));
    });
  }
}

TEST_P(ReduceScatterTest, AnotherCallIsNamed) {
  const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
    take(comm);
    std::vector<float> in(1000 * n);
    std::vector<float> out(1000);
    reduce_scatter(comm, in.data(), out.data(), 1000, TNT_FLOAT32, TNT_SUM, call());
    reduce_scatter(comm, in.data(), out.data(), 1000, TNT_FLOAT32, comm.rank() == 1 ? TNT_MAX : TNT_SUM, call());
  });
  EXPECT_NE(message.find("rank 1 called reduce_scatter max of 1000 float32"), std::string::npos) << message;
}

std::string name_of_reduce_scatter(const ::testing::TestParamInfo<Case<ReduceScatterAlgorithm>>& info) {
  return fmt::format("{}On{}", info.param.algorithm == ReduceScatterAlgorithm::direct ? "Direct" : "Halving", info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ReduceScatterTest,
                         ::testing::ValuesIn(cases({ReduceScatterAlgorithm::direct, ReduceScatterAlgorithm::halving})),
                         name_of_reduce_scatter);

class AllGatherTest : public ::testing::TestWithParam<Case<AllGatherAlgorithm>> {
 protected:
  void take(Communicator& comm) const { force(comm, {.all_gather = GetParam().algorithm}); }
  [[nodiscard]] static Array all_of(const std::vector<Array>& blocks, std::size_t total) {
    Array all(blocks[0].dtype(), total);
    std::size_t begin = 0;
    for (const Array& block : blocks) {
      all.place(begin, block);
      begin += block.count();
    }
    return all;
  }
  const int ranks = GetParam().ranks;
  const std::size_t n = static_cast<std::size_t>(ranks);
};

TEST_P(AllGatherTest, OfEqualBlocksAroundEveryBorder) {
  std::vector<std::size_t> counts{0, 1, 8'191, 8'193};
  if (!testing::sanitized) counts.push_back(300'001);  // more than a piece
  for (const std::size_t count : counts) {
    std::vector<Array> blocks;
    for (unsigned rank = 0; rank < n; ++rank) blocks.push_back(exact_values(TNT_FLOAT32, count, rank));
    const Array expected = all_of(blocks, count * n);
    run_threads(ranks, [&](Communicator& comm) {
      take(comm);
      const auto self = static_cast<std::size_t>(comm.rank());
      Array out(TNT_FLOAT32, count * n);
      all_gather(comm, blocks[self].data(), out.data(), count, TNT_FLOAT32, call());
      EXPECT_EQ(out, expected) << count;
      Array in_place(TNT_FLOAT32, count * n);
      in_place.place(self * count, blocks[self]);
      all_gather(comm, static_cast<float*>(in_place.data()) + self * count, in_place.data(), count, TNT_FLOAT32, call());
      EXPECT_EQ(in_place, expected) << count;
    });
  }
}

TEST_P(AllGatherTest, OfUnevenBlocks) {
  for (const std::size_t unit : {std::size_t{1}, std::size_t{3'001}}) {
    const auto counts = uneven(n, unit);
    std::vector<Array> blocks;
    for (unsigned rank = 0; rank < n; ++rank) blocks.push_back(exact_values(TNT_INT8, counts[rank], rank));
    const Array expected = all_of(blocks, Blocks(counts).total());
    run_threads(ranks, [&](Communicator& comm) {
      take(comm);
      Array out(TNT_INT8, expected.count());
      all_gather_v(comm, blocks[static_cast<std::size_t>(comm.rank())].data(), out.data(), counts, TNT_INT8, call());
      EXPECT_EQ(out, expected);
    });
  }
}

TEST_P(AllGatherTest, AnotherCallIsNamed) {
  const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
    take(comm);
    std::vector<float> in(20'000);
    std::vector<float> out(20'000 * n);
    all_gather(comm, in.data(), out.data(), 20'000, TNT_FLOAT32, call());
    all_gather(comm, in.data(), out.data(), 20'000, comm.rank() == 1 ? TNT_INT32 : TNT_FLOAT32, call());
  });
  EXPECT_NE(message.find("rank 1 called all_gather of 20000 int32"), std::string::npos) << message;
}

TEST_P(AllGatherTest, OnlyTheRankThatDoesNotComeIsNamed) {
  if (ranks != 8) GTEST_SKIP() << "8 ranks are enough: it takes 2 s";
  const std::string message = common_error(ranks, TNT_TIMEOUT, [&](Communicator& comm) {
    take(comm);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    std::vector<float> in(20'000);
    std::vector<float> out(20'000 * n);
    all_gather(comm, in.data(), out.data(), 20'000, TNT_FLOAT32, call(0.3));
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.3 s while rank "), 0U) << message;
}

std::string name_of_all_gather(const ::testing::TestParamInfo<Case<AllGatherAlgorithm>>& info) {
  constexpr const char* names[] = {"Direct", "Bruck", "Ring"};
  return fmt::format("{}On{}", names[static_cast<int>(info.param.algorithm)], info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllGatherTest,
                         ::testing::ValuesIn(cases({AllGatherAlgorithm::direct, AllGatherAlgorithm::bruck,
                                                    AllGatherAlgorithm::ring})),
                         name_of_all_gather);

class RootedReduceTest : public ::testing::TestWithParam<Case<AllReduceAlgorithm>> {
 protected:
  const int ranks = GetParam().ranks;
  const std::size_t n = static_cast<std::size_t>(ranks);
};

TEST_P(RootedReduceTest, HasTheBitsOfTheTreeOnEachRoot) {
  const bool small = GetParam().algorithm == AllReduceAlgorithm::doubling;
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16}) {
    const std::size_t count = small ? 5'001 : 70'003;
    const auto in = disorderly_arrays(n, dtype, count);
    const Array expected = tree_sum_of_arrays(in);
    run_threads(ranks, [&](Communicator& comm) {
      force(comm, {.all_reduce = GetParam().algorithm});
      for (const int root : {0, 1, ranks - 1}) {
        Array data = in[static_cast<std::size_t>(comm.rank())];
        Array out(dtype, count);
        const bool in_place = root == 1;
        reduce(comm, data.data(), in_place ? data.data() : out.data(), count, dtype, TNT_SUM, root, call());
        if (comm.rank() == root) {
          EXPECT_EQ(in_place ? data : out, expected) << root;
        } else {
          EXPECT_EQ(data, in[static_cast<std::size_t>(comm.rank())]) << "the input of another rank has changed";
        }
      }
    });
  }
}

std::string name_of_reduce(const ::testing::TestParamInfo<Case<AllReduceAlgorithm>>& info) {
  constexpr const char* names[] = {"Gather", "Doubling", "Direct", "Halving"};
  return fmt::format("{}On{}", names[static_cast<int>(info.param.algorithm)], info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, RootedReduceTest,
                         ::testing::ValuesIn(cases({AllReduceAlgorithm::doubling, AllReduceAlgorithm::direct,
                                                    AllReduceAlgorithm::halving})),
                         name_of_reduce);

}  // namespace
}  // namespace tnt
