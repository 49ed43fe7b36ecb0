// Failures of communication between devices: every rank gets one message within the deadline that names the rank and the call,
// and everything is released.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "comm/stream_order.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::common_nccl_error;
using testing::FakeNccl;
using testing::NcclRank;
using testing::NcclTest;
using testing::OnDevice;
using testing::options;

class NcclFailureTest : public NcclTest {
 protected:
  // After a failure all communicators were aborted and none was finalized. Each of ours has two of NCCL's, unless it failed
  // while it connected.
  static void expect_aborted(int communicators, int parts = 2) {
    EXPECT_EQ(FakeNccl::count("ncclCommAbort"), parts * communicators);
    EXPECT_EQ(FakeNccl::count("ncclCommFinalize"), 0);
  }
};

void all_reduce(NcclRank& rank, const OnDevice& data, const char* detail = "", std::size_t count = 4) {
  all_reduce(rank.comm, data.get(), data.get(), count, TNT_FLOAT32, TNT_SUM, detail);
}

// Polls, like a caller that waits on the host, until the communication has failed. Every later call throws the same.
[[noreturn]] void wait_for_the_end(NcclRank& rank, const OnDevice& data) {
  const Deadline deadline(testing::default_timeout);
  try {
    while (!deadline.passed()) {
      rank.comm.throw_if_aborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  } catch (const Error& first) {
    // a moment later at most, also where a step polls
    while (true) {
      try {
        all_reduce(rank, data);
      } catch (const Error& second) {
        EXPECT_STREQ(second.what(), first.what());
        EXPECT_EQ(second.status(), first.status());
        throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  throw Error(TNT_SYSTEM, "the communication did not end");
}

OnDevice data_of(NcclRank& rank) { return OnDevice(rank.device, rank.comm.stream(), Array(TNT_FLOAT32, 4)); }

// Three steps; the fake makes one of them fail.
void steps(NcclRank& rank) {
  const OnDevice data = data_of(rank);
  for (int step = 0; step < 3; ++step) all_reduce(rank, data, "bucket 3 of gradients: dense/kernel");
  wait_for_the_end(rank, data);
}

TEST_F(NcclFailureTest, ARemoteErrorIsSaidInNcclsWords) {
  FakeNccl::set("remote_error_at", 3, 1);
  const std::string message = common_nccl_error(3, TNT_SYSTEM, steps);
  EXPECT_EQ(
      message,
      "rank 1: all_reduce sum of 4 float32 (operation 3, bucket 3 of gradients: dense/kernel): NCCL 2.28.9 failed: remote "
      "process exited or there was a network error: connection closed by the fake's peer");
  expect_aborted(3);
}

TEST_F(NcclFailureTest, ASystemErrorIsSaidInNcclsWords) {
  FakeNccl::set("system_error_at", 1, 0);
  const std::string message = common_nccl_error(2, TNT_SYSTEM, steps);
  EXPECT_NE(message.find("rank 0: all_reduce"), std::string::npos) << message;
  EXPECT_NE(message.find("unhandled system error: the fake's network is down"), std::string::npos) << message;
  expect_aborted(2);
}

TEST_F(NcclFailureTest, AnOperationThatIsRefusedEndsTheJob) {
  FakeNccl::set("fails_at", 3, 1);
  const std::string message = common_nccl_error(2, TNT_SYSTEM, steps);
  EXPECT_NE(message.find("rank 1: all_reduce sum of 4 float32 (bucket 3 of gradients: dense/kernel): ncclAllReduce failed: "
                         "invalid argument: the fake does not like this argument (NCCL 2.28.9, communicator.cpp:"),
            std::string::npos)
      << message;
  expect_aborted(2);
}

TEST_F(NcclFailureTest, WhatNeverEndsIsEndedAtTheDeadline) {
  FakeNccl::set("never_ends_at", 3, 1);
  const std::int64_t begin = now_ns();
  const std::string message = common_nccl_error(3, TNT_TIMEOUT, steps, options(0.6));
  EXPECT_NE(message.find("all_reduce sum of 4 float32 (operation 3, bucket 3 of gradients: dense/kernel) has not finished "
                         "within 0.6 s: all ranks have started it"),
            std::string::npos)
      << message;
  EXPECT_LT(static_cast<double>(now_ns() - begin) * 1e-9, 10.0);
  expect_aborted(3);
}

// The stream of an aborted operation ends without an error, and its buffer has no result.
TEST_F(NcclFailureTest, AnAbortIsKnownOnceTheStreamHasEnded) {
  FakeNccl::set("never_ends_at", 2, 1);
  const std::string message = common_nccl_error(2, TNT_TIMEOUT, [](NcclRank& rank) {
    const OnDevice data = data_of(rank);
    all_reduce(rank, data);
    EXPECT_NO_THROW(rank.comm.check());
    all_reduce(rank, data, "the last step");
    rank.device.synchronize(rank.comm.stream());
    rank.comm.check();
    ADD_FAILURE() << "a lost result is not known";
  });
  EXPECT_NE(message.find("the last step"), std::string::npos) << message;
  expect_aborted(2);
}

// NCCL knows of an error that the watchdog has not reported yet.
TEST_F(NcclFailureTest, AnErrorOfNcclIsKnownToACheck) {
  FakeNccl::set("remote_error_at", 1, 0);
  const std::string message = common_nccl_error(
      1, TNT_SYSTEM,
      [](NcclRank& rank) {
        const OnDevice data = data_of(rank);
        all_reduce(rank, data);
        rank.comm.check();
        ADD_FAILURE() << "a lost result is not known";
      },
      options(30.0));
  EXPECT_NE(message.find("connection closed by the fake's peer"), std::string::npos) << message;
}

TEST_F(NcclFailureTest, WhoHasNotCalledIsNamed) {
  const std::string message = common_nccl_error(
      3, TNT_TIMEOUT,
      [](NcclRank& rank) {
        const OnDevice data = data_of(rank);
        for (int step = 0; step < 16; ++step) all_reduce(rank, data);
        if (rank.comm.rank() != 1) all_reduce(rank, data, "bucket 3 of gradients: dense/kernel");
        wait_for_the_end(rank, data);
      },
      options(0.6));
  EXPECT_NE(message.find("all_reduce sum of 4 float32 (operation 17, bucket 3 of gradients: dense/kernel) has not finished "
                         "within 0.6 s: rank 1 has started only 16 operations"),
            std::string::npos)
      << message;
  expect_aborted(3);
}

// Two communicators, on devices with room for one waiting operation. In the same order on all ranks, every operation ends.
void use_two(NcclRank& rank, bool in_one_order) {
  const auto second_host = rank.host.split(0, 0, testing::call());
  const auto second = rank.comm.split(0, 0, second_host.get());
  std::array<DeviceCommunicator*, 2> both{&rank.comm, second.get()};
  if (!in_one_order && rank.comm.rank() == 1) std::swap(both[0], both[1]);
  const OnDevice data = data_of(rank);
  const OnDevice more(rank.device, second->stream(), Array(TNT_FLOAT32, 4));
  for (int step = 0; step < 3; ++step) {
    for (DeviceCommunicator* comm : both) {
      const OnDevice& own = comm == &rank.comm ? data : more;
      all_reduce(*comm, own.get(), own.get(), 4, TNT_FLOAT32, TNT_SUM, "one of two");
    }
    for (const DeviceCommunicator* comm : both) rank.device.synchronize(comm->stream());
    for (DeviceCommunicator* comm : both) comm->check();
  }
}

TEST_F(NcclFailureTest, TwoCommunicatorsShareAFullDeviceInOneOrder) {
  testing::run_nccl(2, [](NcclRank& rank) { use_two(rank, false); });
  FakeNccl::set("co_resident", 1);
  testing::run_nccl(2, [](NcclRank& rank) { use_two(rank, true); });
  const std::string message = common_nccl_error(2, TNT_TIMEOUT, [](NcclRank& rank) { use_two(rank, false); });
  EXPECT_NE(message.find("(operation 1, one of two) has not finished within 0.4 s: "), std::string::npos) << message;
  EXPECT_NE(message.find("or ranks use several communicators in different orders"), std::string::npos) << message;
}

// Rank 1's device is blocked by a message that nobody receives. The error must name rank 1, not the ranks that wait for it.
TEST_F(NcclFailureTest, WhatHoldsADeviceUpIsNamed) {
  const std::string message = common_nccl_error(
      2, TNT_TIMEOUT,
      [&](NcclRank& rank) {
        const Stream caller(rank.device);
        StreamOrder order(rank.device, rank.comm);
        const OnDevice data = data_of(rank);
        const auto host = rank.host.split(0, 0, testing::call());
        const auto part = rank.comm.split(0, 0, host.get());
        const OnDevice other(rank.device, part->stream(), Array(TNT_FLOAT32, 4));
        if (rank.comm.rank() == 1) {
          const Message sent{.in = other.get(), .count = 4, .dtype = TNT_FLOAT32, .peer = 0};
          StreamOrder(rank.device, *part)(caller.get(), [&] { part->exchange({&sent, 1}, "held"); });
        }
        order(caller.get(), [&] { all_reduce(rank, data); });
        wait_for_the_end(rank, data);
      },
      options(0.6));
  EXPECT_EQ(message.find("rank 1: send of 4 float32 to rank 0 (held) has not finished within 0.6 s: its peer"), 0U) << message;
  expect_aborted(4);
}

TEST_F(NcclFailureTest, DifferentCallsAreNamedByNcclsWords) {
  const std::string message = common_nccl_error(2, TNT_SYSTEM, [](NcclRank& rank) {
    const OnDevice data = data_of(rank);
    all_reduce(rank, data);
    all_reduce(rank, data, "", rank.comm.rank() == 0 ? 4 : 3);
    wait_for_the_end(rank, data);
  });
  EXPECT_NE(message.find("invalid usage: rank "), std::string::npos) << message;
  EXPECT_NE(message.find("called ncclAllReduce(count "), std::string::npos) << message;
  expect_aborted(2);
}

TEST_F(NcclFailureTest, DifferentCallsAreNamedEvenIfNcclHangs) {
  FakeNccl::set("mismatch_hangs", 1);
  const std::string message = common_nccl_error(
      3, TNT_MISMATCH,
      [](NcclRank& rank) {
        const OnDevice data = data_of(rank);
        const OnDevice gathered(rank.device, rank.comm.stream(), Array(TNT_FLOAT32, 12));
        all_reduce(rank, data);
        if (rank.comm.rank() == 2) {
          all_gather(rank.comm, data.get(), gathered.get(), 4, TNT_FLOAT32, "");
        } else {
          all_reduce(rank, data);
        }
        wait_for_the_end(rank, data);
      },
      options(2.0));
  EXPECT_EQ(message.find("rank 2 called all_gather of 4 float32 while rank 0 called all_reduce sum of 4 float32 (call 2 of "
                         "their communicator)"),
            0U)
      << message;
  expect_aborted(3);
}

TEST_F(NcclFailureTest, ARankThatNeverJoinsEndsTheInitialisation) {
  FakeNccl::set("never_joins", 1, 1);
  const std::string message = common_nccl_error(3, TNT_TIMEOUT, [](NcclRank&) { ADD_FAILURE(); });
  EXPECT_NE(message.find("NCCL's initialisation of NCCL 2.28.9 has not finished within 0.4 s"), std::string::npos) << message;
  expect_aborted(3, 1);
}

// Like a kernel launch when the device's queue is full of work that waits for the collective.
TEST_F(NcclFailureTest, ACallerThatIsStuckInsideACallIsFreed) {
  FakeNccl::set("blocks_at", 2, 1);
  const std::string message = common_nccl_error(2, TNT_TIMEOUT, steps);
  EXPECT_NE(message.find("operation 2"), std::string::npos) << message;
  expect_aborted(2);
}

TEST_F(NcclFailureTest, WhatEndsTheJobElsewhereEndsIt) {
  const std::string message = common_nccl_error(
      3, TNT_ABORTED,
      [](NcclRank& rank) {
        const OnDevice data = data_of(rank);
        if (rank.comm.rank() != 2) all_reduce(rank, data);
        if (rank.comm.rank() == 2) rank.host.abort(TNT_ABORTED, "the loss is not a number");
        wait_for_the_end(rank, data);
      },
      options());
  EXPECT_EQ(message, "the loss is not a number");
  expect_aborted(3);
}

TEST_F(NcclFailureTest, APartEndsWithTheWhole) {
  FakeNccl::set("never_ends_at", 1, 0);
  const std::string message = common_nccl_error(2, TNT_TIMEOUT, [](NcclRank& rank) {
    const OnDevice data = data_of(rank);
    const auto host = rank.host.split(0, 0, testing::call());
    const auto part = rank.comm.split(0, 0, host.get());
    all_reduce(rank, data);
    const Deadline deadline(testing::default_timeout);
    while (!deadline.passed()) {
      part->throw_if_aborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_NE(message.find("has not finished within 0.4 s"), std::string::npos) << message;
  expect_aborted(4);
}

TEST_F(NcclFailureTest, WhoLeavesEarlyIsNotTakenForLost) {
  testing::run_nccl(
      3,
      [](NcclRank& rank) {
        const OnDevice data = data_of(rank);
        all_reduce(rank, data);
        (void)data.read();
        // rank 0 continues for several rounds of the progress exchange after the others have left the job
        if (rank.comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
        rank.comm.throw_if_aborted();
      },
      options(0.4));
}

TEST_F(NcclFailureTest, WhoLeavesBeforeAnOperationIsNamed) {
  const testing::ThreadJob job(2);
  const auto library = FakeNccl::open();
  const auto endings = job.run([&](Communicator& host) {
    testing::SimulatedDevice device(host.rank(), {.progress = testing::Progress::thread});
    const auto comm = make_nccl_communicator(device, host, options(0.4), library);
    NcclRank rank{host, device, *comm};
    const OnDevice data = data_of(rank);
    all_reduce(rank, data);
    (void)data.read();
    if (host.rank() == 1) return;
    all_reduce(rank, data);
    wait_for_the_end(rank, data);
  });
  EXPECT_FALSE(endings[1]);
  ASSERT_TRUE(endings[0]);
  EXPECT_EQ(endings[0]->status(), TNT_TIMEOUT);
  EXPECT_NE(std::string(endings[0]->what()).find("rank 1 has destroyed its communicator after 1 operations"), std::string::npos)
      << endings[0]->what();
}

// Where errors stay within a communicator, the ranks that are left make a smaller one, with a communicator of NCCL of its own.
TEST_F(NcclFailureTest, RanksThatAreLeftGoOnWithoutTheOther) {
  const testing::ThreadJob job(3);
  const auto library = FakeNccl::open();
  const auto endings = job.run([&](Communicator& world) {
    world.set_error_scope(ErrorScope::communicator);
    testing::SimulatedDevice device(world.rank(), {.progress = testing::Progress::thread});
    const auto whole = world.split(0, 0, testing::call());
    auto host = whole->duplicate(testing::call());
    auto comm = make_nccl_communicator(device, *host, options(0.4), library);
    NcclRank rank{*host, device, *comm};
    {
      const OnDevice data = data_of(rank);
      all_reduce(rank, data);
      (void)data.read();
      if (host->rank() == 1) return;
      all_reduce(rank, data);
      EXPECT_THROW(wait_for_the_end(rank, data), Error);
    }
    whole->abort(TNT_ABORTED, "going on without the others");
    const auto smaller = whole->shrink(testing::call());
    comm.reset();
    host.reset();
    ASSERT_EQ(smaller->size(), 2);
    const auto again = make_nccl_communicator(device, *smaller, options(), library);
    NcclRank left{*smaller, device, *again};
    const auto in = testing::inputs(2, TNT_FLOAT32, 4, 1);
    const OnDevice data = testing::put(left, in[testing::at(smaller->rank())]);
    all_reduce(left, data);
    EXPECT_EQ(data.read(), testing::reduced(in, TNT_SUM));
    left.comm.check();
    EXPECT_FALSE(world.async_error());
  });
  for (const auto& ending : endings) EXPECT_FALSE(ending) << ending->what();
}

// As when a rank calls tnt_comm_shrink while another still waits for the device.
TEST_F(NcclFailureTest, WhatEndsTheCommunicatorEndsItsDevices) {
  testing::run_threads(2, [&](Communicator& world) {
    world.set_error_scope(ErrorScope::communicator);
    testing::SimulatedDevice device(world.rank(), {.progress = testing::Progress::thread});
    const auto whole = world.split(0, 0, testing::call());
    const auto host = whole->duplicate(testing::call());
    const auto comm = make_nccl_communicator(device, *host, options(), FakeNccl::open());
    NcclRank rank{*host, device, *comm};
    const OnDevice data = data_of(rank);
    if (host->rank() == 0) all_reduce(rank, data);
    if (host->rank() == 1) whole->abort(TNT_ABORTED, "the loss is not a number");
    try {
      wait_for_the_end(rank, data);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the loss is not a number");
    }
    EXPECT_FALSE(world.async_error());
  });
  expect_aborted(2);
}

}  // namespace
}  // namespace tnt
