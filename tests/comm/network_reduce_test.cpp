// all_reduce over a network by each of its algorithms, on any number of ranks: for every type and operation, around the borders
// of chunks, slices and halves, with the bits of the tree; in place, out of place, packed and scaled; and when a call fails.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "comm/network/algorithms/partial_sums.hpp"
#include "comm/network/communicator.hpp"
#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/fake_network.hpp"
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
using testing::run_threads;
using testing::tree_sum_of_arrays;

using Algorithm = AllReduceAlgorithm;

void force(Communicator& comm, Algorithm algorithm) {
  dynamic_cast<NetworkCommunicator&>(comm).force({.all_reduce = algorithm});
}

enum class How { in_place, out_of_place, in_two_tensors };

Array result_of(Communicator& comm, const std::vector<Array>& in, tnt_op_t op, How how) {
  const Array& own = in[static_cast<std::size_t>(comm.rank())];
  Array data = own;
  Array out(own.dtype(), own.count());
  const Array& result = how == How::in_place ? data : out;
  void* to = how == How::in_place ? data.data() : out.data();
  const std::size_t first = how == How::in_two_tensors ? own.count() / 3 : own.count();
  const auto behind = first * dtype_size(own.dtype());
  const TensorView views[] = {{.in = data.data(), .out = to, .count = first},
                              {.in = static_cast<std::byte*>(data.data()) + behind,
                               .out = static_cast<std::byte*>(to) + behind,
                               .count = own.count() - first}};
  all_reduce(comm, FusedBuffer({views, how == How::in_two_tensors ? 2U : 1U}, own.dtype()), op, call());
  return result;
}

struct Case {
  Algorithm algorithm;
  int ranks;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Algorithm algorithm : {Algorithm::gather, Algorithm::doubling, Algorithm::direct, Algorithm::halving}) {
    for (const int ranks : testing::some_of({2, 3, 4, 5, 7, 8, 13, 16}, {3, 8})) result.push_back({algorithm, ranks});
  }
  return result;
}

class ReduceTest : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] bool small_only() const { return algorithm == Algorithm::gather || algorithm == Algorithm::doubling; }
  const Algorithm algorithm = GetParam().algorithm;
  const int ranks = GetParam().ranks;
  const std::size_t n = static_cast<std::size_t>(ranks);
};

// Around a cache line for each rank, the largest data that is gathered or travels in two messages, one
// chunk and several.
TEST_P(ReduceTest, HasTheBitsOfTheTreeAroundEveryBorder) {
  std::vector<std::size_t> counts{1, 16 * n - 1, 16 * n + 1};
  if (small_only()) {
    counts.insert(counts.end(), {16'384 / n, 16'384 / n - 1, 992, 993, 2000, 2001});  // one message or two
  } else {
    counts.insert(counts.end(), {32'767, 32'768, 32'769, 100'003});
    if (!testing::sanitized) counts.push_back(600'001);
  }
  How how = How::in_place;
  for (const std::size_t count : counts) {
    const auto in = disorderly_arrays(n, TNT_FLOAT32, count);
    const Array expected = tree_sum_of_arrays(in);
    run_threads(ranks, [&](Communicator& comm) {
      force(comm, algorithm);
      EXPECT_EQ(result_of(comm, in, TNT_SUM, how), expected) << count << " elements, way " << static_cast<int>(how);
    });
    how = static_cast<How>((static_cast<int>(how) + 1) % 3);
  }
}

TEST_P(ReduceTest, OfEveryTypeAndOperation) {
  int turn = 0;
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::size_t count = (small_only() ? 65'000 / n : 70'003) / dtype_size(dtype);
    std::vector<Array> in;
    for (unsigned rank = 0; rank < n; ++rank) in.push_back(testing::exact_values(dtype, count, rank));
    const auto floats = disorderly_arrays(n, dtype, count);
    const Array sum = tree_sum_of_arrays(floats);
    std::vector<Array> expected;
    for (const tnt_op_t op : all_ops) expected.push_back(testing::reduced(in, op));
    run_threads(ranks, [&](Communicator& comm) {
      force(comm, algorithm);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (n > 8 && all_ops[i] == TNT_PROD) continue;  // not exact in every type
        const How how = static_cast<How>((turn + static_cast<int>(i)) % 3);
        EXPECT_EQ(result_of(comm, in, all_ops[i], how), expected[i])
            << dtype_name(dtype) << " " << op_name(all_ops[i]) << ", way " << static_cast<int>(how);
      }
      EXPECT_EQ(result_of(comm, floats, TNT_SUM, How::in_place), sum) << dtype_name(dtype);
    });
    ++turn;
  }
}

// Of scaled float32 that travels in 16 bits: each contribution is rounded, their sum in float32 is rounded once.
TEST_P(ReduceTest, OfWhatTravelsIn16Bits) {
  const std::size_t count = small_only() ? 30'000 / n : 20'001;
  const auto in = disorderly_arrays(n, TNT_FLOAT32, count);
  std::vector<Array> rounded;
  for (const Array& array : in) {
    Array& half = rounded.emplace_back(TNT_BFLOAT16, count);
    for (std::size_t i = 0; i < count; ++i) half.set(i, 0.5 * array.get(i));
  }
  const Array expected = tree_sum_of_arrays(rounded);
  run_threads(ranks, [&](Communicator& comm) {
    force(comm, algorithm);
    Array data = in[static_cast<std::size_t>(comm.rank())];
    const TensorView view{.in = data.data(), .out = data.data(), .count = count, .scale = 0.5, .dtype = TNT_FLOAT32};
    all_reduce(comm, FusedBuffer({&view, 1}, TNT_BFLOAT16), TNT_SUM, call());
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data.get(i), expected.get(i)) << i;
  });
}

void sum_of(Communicator& comm, std::size_t count, double timeout = testing::default_timeout) {
  std::vector<float> data(count);
  const TensorView view{.in = data.data(), .out = data.data(), .count = count};
  all_reduce(comm, FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call(timeout));
}

TEST_P(ReduceTest, AnotherCallIsNamed) {
  const std::size_t count = small_only() ? 16'000 / n : 40'000;
  const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
    force(comm, algorithm);
    sum_of(comm, count);
    sum_of(comm, comm.rank() == 1 ? count - 16 : count);
  });
  EXPECT_NE(message.find(fmt::format("rank 1 called all_reduce sum of {} float32", count - 16)), std::string::npos) << message;
}

// A rank that waits for the second message of a call need not get one.
TEST_P(ReduceTest, ACallOfOneMessageIsNamedAmongCallsOfTwo) {
  if (!small_only() || 1500 * n > 16'000) GTEST_SKIP() << "its messages are not cut";
  for (const auto& [count, odd] : {std::pair{1500U, 500U}, std::pair{500U, 1500U}}) {
    const std::string message = common_error(ranks, TNT_MISMATCH, [&, count = count, odd = odd](Communicator& comm) {
      force(comm, algorithm);
      sum_of(comm, count);
      sum_of(comm, comm.rank() == 1 ? odd : count);
    });
    EXPECT_NE(message.find(fmt::format("rank 1 called all_reduce sum of {} float32", odd)), std::string::npos) << message;
  }
}

TEST_P(ReduceTest, OnlyTheRankThatDoesNotComeIsNamed) {
  if (ranks != 8) GTEST_SKIP() << "8 ranks are enough: it takes 3 s";
  const std::size_t count = small_only() ? 16'000 / n : 40'000;
  const std::string message = common_error(ranks, TNT_TIMEOUT, [&](Communicator& comm) {
    force(comm, algorithm);
    sum_of(comm, count);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    sum_of(comm, count, 0.3);
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.3 s while rank "), 0U) << message;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* names[] = {"Gather", "Doubling", "Direct", "Halving"};
  return fmt::format("{}On{}", names[static_cast<int>(info.param.algorithm)], info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ReduceTest, ::testing::ValuesIn(cases()), name_of);

TEST(PartialSums, MeansOfSmallIntegersAreNotHeldInTheirType) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    EXPECT_TRUE(PartialSums::can(dtype, TNT_SUM));
    EXPECT_EQ(PartialSums::can(dtype, TNT_AVG),
              dtype != TNT_INT8 && dtype != TNT_UINT8 && dtype != TNT_INT32 && dtype != TNT_UINT32);
  }
}

// Two ranks over one hub, whose messages lie in memory that a call of the user would own.
struct Pair {
  std::shared_ptr<testing::FakeHub> hub = std::make_shared<testing::FakeHub>(2, 0);
  std::shared_ptr<NetworkWorld> world = std::make_shared<NetworkWorld>(std::make_shared<testing::FakeNetwork>(hub, 0));
  testing::FakeNetwork other{hub, 1};
  Group group{.world = world, .context = 0, .members = {0, 1}, .self = 0, .involved = {}};
};

TEST(CallersMemory, IsNotWrittenOnceACallHasFailed) {
  Pair pair;
  std::vector<std::byte> memory(100'000);
  {
    RequestBatch batch(pair.group);
    batch.receive({callers_memory(memory.data()), 0, memory.size()}, 1, scatter_tag);
    EXPECT_THROW(batch.wait({.timeout = 0.01}, std::nullopt, [] { return "the test"; }), Error);
  }
  EXPECT_TRUE(pair.world->closed());
  const std::vector<std::byte> late(memory.size(), std::byte{7});
  const auto sent = pair.other.isend(late.data(), late.size(), 0, pair.world->tag(0, scatter_tag), nullptr);
  EXPECT_FALSE(sent->test());
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
  EXPECT_THROW(pair.world->throw_if_aborted(), Error);
}

TEST(CallersMemory, IsNotReadOnceACallHasFailed) {
  Pair pair;
  {
    std::vector<std::byte> memory(100'000);
    RequestBatch batch(pair.group);
    batch.send({callers_memory(memory.data()), 0, memory.size()}, 1, scatter_tag);
  }
  std::vector<std::byte> room(100'000);
  const auto wanted = pair.other.irecv(room.data(), room.size(), 0, pair.world->tag(0, scatter_tag), nullptr);
  EXPECT_FALSE(wanted->test());
}

TEST(CallersMemory, StagingBuffersNeedNoEndOfTheJob) {
  Pair pair;
  StagingPool pool;
  {
    RequestBatch batch(pair.group);
    batch.receive({pool.acquire(100'000), 0, 100'000}, 1, scatter_tag);
  }
  EXPECT_FALSE(pair.world->closed());
  EXPECT_NO_THROW(pair.world->throw_if_aborted());
}

}  // namespace
}  // namespace tnt
