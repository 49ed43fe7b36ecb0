// The NCCL communicator besides its collectives (device_collectives_test.cpp): order with the caller's streams, operations in
// progress, split, invalid calls.
#include "comm/nccl/communicator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/stream_order.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::at;
using testing::FakeNccl;
using testing::inputs;
using testing::NcclRank;
using testing::NcclTest;
using testing::OnDevice;
using testing::put;
using testing::run_nccl;
using testing::SimulatedDevice;

class NcclCommunicatorTest : public NcclTest {};

TEST_F(NcclCommunicatorTest, SaysWhatItIs) {
  run_nccl(2, [](NcclRank& rank) {
    EXPECT_STREQ(rank.comm.transport(), "nccl");
    EXPECT_EQ(rank.comm.version(), "NCCL 2.28.9");
    EXPECT_EQ(rank.comm.rank(), rank.host.rank());
    EXPECT_EQ(rank.comm.size(), 2);
    EXPECT_EQ(rank.device.priority_of(rank.comm.stream()), Priority::high);
    EXPECT_NO_THROW(rank.comm.throw_if_aborted());
  });
}

void add_one(NcclRank& rank, StreamHandle stream, const OnDevice& data, std::size_t count) {
  rank.device.enqueue(
      stream, {{data.get(), count * 4}}, {{data.get(), count * 4}},
      [values = reinterpret_cast<float*>(data.get()), count] {
        for (std::size_t i = 0; i < count; ++i) values[i] += 1;
      },
      "add one");
}

// The simulated device reports missing order.
TEST_F(NcclCommunicatorTest, IsInOrderWithTheCallersStream) {
  run_nccl(3, [](NcclRank& rank) {
    const Stream caller(rank.device);
    StreamOrder order(rank.device, rank.comm);
    const OnDevice data(rank.device, caller.get(), testing::repeated(TNT_FLOAT32, 9, [](std::size_t) { return 1.0; }));
    double expected = 1;
    for (int step = 0; step < 20; ++step) {
      add_one(rank, caller.get(), data, 9);
      order(caller.get(), [&] { all_reduce(rank.comm, data.get(), data.get(), 9, TNT_FLOAT32, TNT_AVG, "a step"); });
      expected += 1;
    }
    add_one(rank, caller.get(), data, 9);
    EXPECT_EQ(data.read().get(8), expected + 1);
  });
}

TEST_F(NcclCommunicatorTest, TheCallersStreamGetsOneRecordAndOneWait) {
  run_nccl(2, [](NcclRank& rank) {
    const Stream caller(rank.device);
    StreamOrder order(rank.device, rank.comm);
    const OnDevice data(rank.device, caller.get(), Array(TNT_FLOAT32, 9));
    const auto before = rank.device.enqueued_on(caller.get()).size();
    order(caller.get(), [&] { all_reduce(rank.comm, data.get(), data.get(), 9, TNT_FLOAT32, TNT_SUM, ""); });
    EXPECT_EQ(rank.device.enqueued_on(caller.get()).size() - before, 2U);
    rank.device.synchronize(caller.get());
  });
}

TEST_F(NcclCommunicatorTest, AGraphWithCollectivesIsReplayed) {
  run_nccl(2, [](NcclRank& rank) {
    const Stream caller(rank.device);
    StreamOrder order(rank.device, rank.comm);
    const OnDevice data(rank.device, caller.get(), testing::repeated(TNT_FLOAT32, 4, [](std::size_t) { return 1.0; }));
    rank.device.begin_capture(caller.get());
    order(caller.get(), [&] { all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, ""); });
    const SimulatedDevice::Graph graph = rank.device.end_capture(caller.get());
    for (int step = 0; step < 3; ++step) rank.device.replay(graph, caller.get());
    EXPECT_EQ(data.read().get(3), 8.0);
  });
}

// NCCL waits for the graphs that use a communicator before it frees it.
TEST_F(NcclCommunicatorTest, AGraphThatOutlivesItHoldsNobodyUp) {
  std::vector<SimulatedDevice::Graph> graphs(2);
  run_nccl(2, [&](NcclRank& rank) {
    const Stream caller(rank.device);
    StreamOrder order(rank.device, rank.comm);
    const OnDevice data(rank.device, caller.get(), testing::repeated(TNT_FLOAT32, 4, [](std::size_t) { return 1.0; }));
    rank.device.begin_capture(caller.get());
    order(caller.get(), [&] { all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, ""); });
    SimulatedDevice::Graph& graph = graphs[at(rank.comm.rank())];
    graph = rank.device.end_capture(caller.get());
    rank.device.replay(graph, caller.get());
    EXPECT_EQ(data.read().get(3), 2.0);
    EXPECT_EQ(rank.comm.captured_operations(), 1U);
  });
  left_ += 2;  // the ranks' blocking communicators
}

TEST_F(NcclCommunicatorTest, AGraphThatIsJustGoneIsWaitedFor) {
  run_nccl(2, [&](NcclRank& rank) {
    const OnDevice data = put(rank, Array(TNT_FLOAT32, 4));
    rank.device.synchronize(rank.comm.stream());
    rank.device.begin_capture(rank.comm.stream());
    all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
    SimulatedDevice::Graph graph = rank.device.end_capture(rank.comm.stream());
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      graph.reset();
    });
    EXPECT_EQ(rank.comm.captured_operations(), 0U);
    other.join();
  });
}

// From 2.23 on, NCCL starts a thread for each operation of a communicator that does not block.
TEST_F(NcclCommunicatorTest, AnOperationCostsNoThread) {
  run_nccl(2, [](NcclRank& rank) {
    const OnDevice data = put(rank, Array(TNT_FLOAT32, 4));
    const OnDevice turned(rank.device, rank.comm.stream(), Array(TNT_FLOAT32, 4));
    for (int step = 0; step < 5; ++step) {
      all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
      all_to_all(rank.comm, data.get(), turned.get(), 2, TNT_FLOAT32, "");
    }
    (void)turned.read();
  });
  EXPECT_EQ(FakeNccl::count("threads"), 0);
}

// Before 2.23, communicators that do not block take the operations.
TEST_F(NcclCommunicatorTest, WhatIsInProgressIsAskedForUntilItWasTaken) {
  FakeNccl::set("version", 22200);
  for (const char* key : {"init_polls", "enqueue_polls", "split_polls", "finalize_polls"}) FakeNccl::set(key, 3);
  run_nccl(3, [](NcclRank& rank) {
    const auto host = rank.host.split(0, 0, testing::call());
    const auto part = rank.comm.split(0, 0, host.get());
    for (DeviceCommunicator* comm : {&rank.comm, part.get()}) {
      const auto in = inputs(3, TNT_FLOAT32, 6, 2);
      const OnDevice data(rank.device, comm->stream(), in[at(comm->rank())]);
      all_reduce(*comm, data.get(), data.get(), 6, TNT_FLOAT32, TNT_SUM, "");
      const OnDevice turned(rank.device, comm->stream(), Array(TNT_FLOAT32, 6));
      all_to_all(*comm, data.get(), turned.get(), 2, TNT_FLOAT32, "");
      EXPECT_EQ(data.read(), testing::reduced(in, TNT_SUM));
    }
  });
}

class NcclSplit : public NcclTest, public ::testing::WithParamInterface<int> {};

// Even and odd ranks, in descending order; rank 4 is in neither.
TEST_P(NcclSplit, MakesTheCommunicatorsOfTheHostsSplit) {
  FakeNccl::set("version", GetParam());
  run_nccl(5, [](NcclRank& rank) {
    const int self = rank.comm.rank();
    const int color = self == 4 ? -1 : self % 2;
    const auto host = rank.host.split(color, -self, testing::call());
    const auto part = rank.comm.split(color, -self, host.get());
    ASSERT_EQ(part == nullptr, self == 4);
    if (part) {
      EXPECT_EQ(part->rank(), self < 2 ? 1 : 0);
      EXPECT_EQ(part->size(), 2);
      const OnDevice source(rank.device, part->stream(), testing::repeated(TNT_INT32, 1, [&](auto) { return self; }));
      const OnDevice target(rank.device, part->stream(), Array(TNT_INT32, 2));
      all_gather(*part, source.get(), target.get(), 1, TNT_INT32, "");
      EXPECT_EQ(target.read().get(0), color + 2);
      EXPECT_EQ(target.read().get(1), color);
    }
    all_reduce(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, TNT_SUM, "the whole is there");
  });
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclSplit, ::testing::Values(21702, 22200, 22809),
                         [](const auto& info) { return std::to_string(info.param); });

struct BadCall {
  const char* name;
  void (*call)(DeviceCommunicator&, void* memory);
  const char* message;
  tnt_status_t status = TNT_INVALID_ARGUMENT;
};
class NcclBadCalls : public NcclTest, public ::testing::WithParamInterface<BadCall> {};

TEST_P(NcclBadCalls, AreNamedAndChangeNothing) {
  run_nccl(2, [](NcclRank& rank) {
    const OnDevice data = put(rank, Array(TNT_FLOAT32, 4));
    try {
      GetParam().call(rank.comm, data.get());
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), GetParam().status);
      EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
    }
    all_reduce(rank.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
    (void)data.read();
  });
}

const BadCall bad_calls[] = {
    {"Null", [](auto& comm, void* memory) { all_reduce(comm, nullptr, memory, 4, TNT_FLOAT32, TNT_SUM, ""); },
     "all_reduce of 4 elements: the input is null"},
    {"NullOutput", [](auto& comm, void* memory) { all_gather(comm, memory, nullptr, 4, TNT_FLOAT32, ""); },
     "all_gather of 4 elements: the output is null"},
    {"Root", [](auto& comm, void* memory) { broadcast(comm, memory, memory, 4, TNT_FLOAT32, 2, ""); },
     "broadcast from rank 2: there are 2 ranks"},
    {"Peer", [](auto& comm, void* memory) { send(comm, memory, 4, TNT_FLOAT32, -1, ""); }, "send to rank -1: there are 2"},
    {"Dtype", [](auto& comm, void* memory) { all_gather(comm, memory, memory, 1, static_cast<tnt_dtype_t>(99), ""); },
     "99 is not a dtype"},
    {"BitsOfIntegers", [](auto& comm, void* memory) { all_reduce(comm, memory, memory, 1, TNT_INT8, TNT_BXOR, ""); },
     "NCCL has no operation bxor", TNT_UNSUPPORTED},
    {"Operation",
     [](auto& comm, void* memory) { all_reduce(comm, memory, memory, 1, TNT_INT8, static_cast<tnt_op_t>(77), ""); },
     "77 is not an operation"},
    {"Itself", [](auto& comm, void* memory) { send(comm, memory, 4, TNT_FLOAT32, comm.rank(), ""); }, "both ends in one call"},
    {"SplitWithoutHost", [](auto& comm, void*) { (void)comm.split(0, 0, nullptr); }, "without a host communicator"}};
INSTANTIATE_TEST_SUITE_P(All, NcclBadCalls, ::testing::ValuesIn(bad_calls),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tnt
