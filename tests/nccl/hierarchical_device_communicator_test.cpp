// Collectives between devices by NCCL inside nodes and through pinned memory between nodes; more than the results with little
// data (device_collectives_test.cpp): slices, chunks and their order, nodes, split, and failures.
#include "comm/hierarchical/device_communicator.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <thread>

#include "base/clock.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::at;
using testing::call;
using testing::common_hierarchical_error;
using testing::FakeNccl;
using testing::inputs;
using testing::NcclRank;
using testing::NcclTest;
using testing::Nodes;
using testing::OnDevice;
using testing::options;
using testing::put;
using testing::run_hierarchical;
using testing::some_of;

const Nodes two_by_two{0, 0, 1, 1};

class HierarchicalDevices : public NcclTest {};

struct Layout {
  const char* name;
  Nodes nodes;
};
class HierarchicalAllReduce : public NcclTest, public ::testing::WithParamInterface<Layout> {};

// Counts that exercise slices, every interesting remainder and several chunks; in place and not. The device detects missing
// order: NCCL works on a chunk's slices while the lane has the previous chunk's.
TEST_P(HierarchicalAllReduce, OfSlicesRestsAndChunks) {
  const auto& nodes = GetParam().nodes;
  run_hierarchical(nodes, [&](NcclRank& rank) {
    for (const tnt_dtype_t dtype : some_of({TNT_FLOAT32, TNT_BFLOAT16, TNT_INT8, TNT_FLOAT64}, {TNT_FLOAT32, TNT_BFLOAT16})) {
      for (const std::size_t count : {1U, 4095U, 4096U, 8192U, 20'001U, 1'300'013U}) {
        if (count > 1'000'000 && dtype != TNT_FLOAT32) continue;
        const auto in = inputs(rank.comm.size(), dtype, count, 3);
        const OnDevice source = put(rank, in[at(rank.comm.rank())]);
        const OnDevice target = put(rank, Array(dtype, count));
        for (const tnt_op_t op : some_of({TNT_SUM, TNT_MAX, TNT_AVG}, {TNT_AVG})) {
          const Array expected = testing::reduced(in, op);
          all_reduce(rank.comm, source.get(), target.get(), count, dtype, op, "not in place");
          EXPECT_EQ(target.read(), expected) << count << " " << dtype << " " << op;
        }
        EXPECT_EQ(source.read(), in[at(rank.comm.rank())]) << "the input is as it was";
        all_reduce(rank.comm, source.get(), source.get(), count, dtype, TNT_SUM, "in place");
        EXPECT_EQ(source.read(), testing::reduced(in, TNT_SUM)) << count << " " << dtype;
      }
    }
  });
}

const Layout layouts[] = {{"InTurn", {0, 1, 0, 1}},
                          {"ThreeByOne", {0, 1, 2}},
                          {"TwoAndOne", {0, 0, 1}},
                          {"OneNode", {1, 1, 1}},
                          {"TwoByTwo", {0, 0, 1, 1}},
                          {"OneAndThree", {5, 7, 7, 7}},
                          {"One", {0}},
                          {"ThreeByTwo", {0, 1, 2, 0, 1, 2}},
                          {"TwoByFour", {0, 0, 0, 0, 1, 1, 1, 1}}};
// Under a sanitizer the last five are left out: more ranks, or less of a hierarchy.
INSTANTIATE_TEST_SUITE_P(Nodes, HierarchicalAllReduce,
                         ::testing::ValuesIn(std::begin(layouts), std::end(layouts) - (testing::sanitized ? 5 : 0)),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(HierarchicalDevices, SayWhatCarriesThem) {
  run_hierarchical(two_by_two, [](NcclRank& rank) {
    EXPECT_STREQ(rank.comm.transport(), "hierarchical");
    EXPECT_EQ(rank.comm.version(), "NCCL 2.28.9 inside nodes, shm through pinned memory between them");
    EXPECT_EQ(rank.device.priority_of(rank.comm.stream()), Priority::high);
  });
  run_hierarchical({0, 0}, [](NcclRank& rank) { EXPECT_STREQ(rank.comm.transport(), "nccl"); });
  run_hierarchical({0, 1}, [](NcclRank& rank) { EXPECT_STREQ(rank.comm.transport(), "staged"); });
}

// Each of the four copies half of the data over the bus, and needs pinned memory for one slice of a chunk only.
TEST_F(HierarchicalDevices, EveryRankTakesItsSliceToTheNetwork) {
  constexpr std::size_t count = 8U << 20U;  // of int8: four chunks
  run_hierarchical(two_by_two, [](NcclRank& rank) {
    const OnDevice data = put(rank, Array(TNT_INT8, count));
    const int copies = rank.device.calls(testing::Call::copy);
    all_reduce(rank.comm, data.get(), data.get(), count, TNT_INT8, TNT_SUM, "");
    rank.device.synchronize(rank.comm.stream());
    EXPECT_EQ(rank.device.calls(testing::Call::copy) - copies, 2 * 4);
    EXPECT_EQ(rank.device.calls(testing::Call::allocate_pinned), 1);
  });
  EXPECT_EQ(FakeNccl::count("ncclReduceScatter"), 4 * 4);
  EXPECT_EQ(FakeNccl::count("ncclAllGather"), 4 * 4);
  EXPECT_EQ(FakeNccl::count("ncclAllReduce"), 0);
}

TEST_F(HierarchicalDevices, FollowTheCallerAndWaitForNothing) {
  run_hierarchical(two_by_two, [](NcclRank& rank) {
    const Stream caller(rank.device);
    StreamOrder order(rank.device, rank.comm);
    for (const std::size_t count : {3U, 70'000U, 1000U}) {
      const Array in = testing::repeated(TNT_FLOAT32, count, [](std::size_t i) { return static_cast<double>(i); });
      const OnDevice data(rank.device, caller.get(), in);
      const int synchronized = rank.device.calls(testing::Call::synchronize);
      for (int step = 0; step < 3; ++step) {
        const auto before = rank.device.enqueued_on(caller.get()).size();
        order(caller.get(), [&] { all_reduce(rank.comm, data.get(), data.get(), count, TNT_FLOAT32, TNT_SUM, "a step"); });
        order(caller.get(), [&] { broadcast(rank.comm, data.get(), data.get(), count, TNT_FLOAT32, 3, "a step"); });
        EXPECT_EQ(rank.device.enqueued_on(caller.get()).size() - before, 4U);
      }
      EXPECT_EQ(rank.device.calls(testing::Call::synchronize), synchronized);
      EXPECT_EQ(data.read().get(2), 2.0 * 64);
    }
  });
}

// Ranks 0, 1, 2 and 4, 3 on their nodes. One of the new communicators has a rank on each node, the other two ranks on one and
// one on the other.
TEST_F(HierarchicalDevices, APartFindsItsOwnNodes) {
  run_hierarchical({0, 0, 0, 1, 1, 1}, [](NcclRank& rank) {
    const int self = rank.comm.rank();
    const int colors[] = {0, 1, 1, 0, 1, -1};
    const auto host = rank.host.split(colors[self], -self, call());
    const auto part = rank.comm.split(colors[self], -self, host.get());
    ASSERT_EQ(part == nullptr, self == 5);
    if (!part) return;
    EXPECT_STREQ(part->transport(), colors[self] == 0 ? "staged" : "hierarchical");
    EXPECT_EQ(part->rank(), host->rank());
    const std::size_t count = 9000;
    const auto in = inputs(part->size(), TNT_FLOAT32, count, 2);
    const OnDevice data(rank.device, part->stream(), in[at(part->rank())]);
    all_reduce(*part, data.get(), data.get(), count, TNT_FLOAT32, TNT_SUM, "");
    EXPECT_EQ(data.read(), testing::reduced(in, TNT_SUM));
  });
}

TEST_F(HierarchicalDevices, RefuseToBeCaptured) {
  run_hierarchical(two_by_two, [](NcclRank& rank) {
    const OnDevice data = put(rank, Array(TNT_FLOAT32, 4));
    rank.device.synchronize(rank.comm.stream());
    rank.device.begin_capture(rank.comm.stream());
    try {
      all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
      EXPECT_NE(std::string(error.what()).find("cannot be captured in a CUDA graph"), std::string::npos) << error.what();
    }
    (void)rank.device.end_capture(rank.comm.stream());
  });
}

// ---------------------------------------------------------------------------------------------------------------- ends

[[noreturn]] void wait_for_the_end(NcclRank& rank) {
  for (const Deadline deadline(testing::default_timeout); !deadline.passed();) {
    rank.comm.throw_if_aborted();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  throw Error(TNT_SYSTEM, "the communication did not end");
}

void steps(NcclRank& rank, int n, std::size_t count) {
  const OnDevice data = put(rank, Array(TNT_FLOAT32, count));
  for (int step = 0; step < n; ++step) {
    all_reduce(rank.comm, data.get(), data.get(), count, TNT_FLOAT32, TNT_SUM, "bucket 3 of gradients");
  }
  wait_for_the_end(rank);
}

// With slices, all ranks of the other node wait for the rank; without, most ranks wait inside their node for the rank that
// does.
TEST_F(HierarchicalDevices, WhoHasNotCalledIsNamedByItsNode) {
  for (const std::size_t count : {4U, 20'000U}) {
    const std::string message = common_hierarchical_error(
        two_by_two, TNT_TIMEOUT, [&](NcclRank& rank) { steps(rank, rank.comm.rank() == 3 ? 2 : 3, count); }, options(0.6));
    EXPECT_EQ(message.find("rank 2: "), 0U) << message;
    EXPECT_NE(message.find("bucket 3 of gradients"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 3 has started only "), std::string::npos) << message;
  }
}

// If all ranks of a node are missing, the lanes report it.
TEST_F(HierarchicalDevices, ANodeThatHasNotCalledIsNamed) {
  const std::string message = common_hierarchical_error(
      two_by_two, TNT_TIMEOUT, [](NcclRank& rank) { steps(rank, rank.comm.rank() < 2 ? 3 : 2, 20'000); }, options(0.6));
  EXPECT_TRUE(message.find("rank 2 did not arrive") == 0 || message.find("rank 3 did not arrive") == 0) << message;
  EXPECT_NE(message.find("all_reduce sum of 20000 float32, bucket 3 of gradients"), std::string::npos) << message;
}

TEST_F(HierarchicalDevices, AnErrorOfNcclsIsEveryNodes) {
  FakeNccl::set("remote_error_at", 3, 1);  // the second rank of each node
  const std::string message = common_hierarchical_error(
      two_by_two, TNT_SYSTEM, [](NcclRank& rank) { steps(rank, 3, 20'000); }, options(2.0));
  EXPECT_TRUE(message.find("rank 1: ") == 0 || message.find("rank 3: ") == 0) << message;
  EXPECT_NE(message.find("remote process exited"), std::string::npos) << message;
  EXPECT_EQ(FakeNccl::count("ncclCommAbort"), 8);  // two for each rank
}

TEST_F(HierarchicalDevices, AnAbortIsEveryRanks) {
  const std::string message = common_hierarchical_error(
      two_by_two, TNT_ABORTED,
      [](NcclRank& rank) {
        if (rank.comm.rank() == 2) rank.comm.abort(TNT_ABORTED, "the loss is not a number");
        steps(rank, 1, 20'000);
      },
      options());
  EXPECT_EQ(message, "the loss is not a number");
}

TEST_F(HierarchicalDevices, OtherVersionsOnAnotherNodeAreNamed) {
  const auto newer = FakeNccl::open();
  FakeNccl::set("version", 21805);
  const auto older = FakeNccl::open();
  const std::string message = testing::common_error(4, TNT_MISMATCH, [&](Communicator& host) {
    testing::SimulatedDevice device(host.rank(), {.progress = testing::Progress::thread});
    const bool second = host.rank() >= 2;
    (void)make_hierarchical_device_communicator(device, host, options(), second ? "b" : "a", second ? older : newer);
  });
  EXPECT_EQ(message.find("rank 2 has NCCL 2.18.5 while rank 0 has NCCL 2.28.9: install"), 0U) << message;
}

}  // namespace
}  // namespace tnt
