// Collectives between devices through pinned memory, besides their results (device_collectives_test.cpp): description, split,
// and failures.
#include "comm/staged/staged_communicator.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.hpp"
#include "comm/stream_order.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::OnDevice;
using testing::SimulatedDevice;

// Ranks with a communicator each.
struct Job {
  explicit Job(Communicator& host, double timeout = testing::default_timeout)
      : device(host.rank(), {.progress = testing::Progress::thread}), comm(device, host.split(0, 0, call()), timeout) {}
  SimulatedDevice device;
  StagedCommunicator comm;
};

TEST(StagedCommunicator, SaysWhatCarriesIt) {
  testing::run_threads(2, [](Communicator& host) {
    const Job job(host);
    EXPECT_STREQ(job.comm.transport(), "staged");
    EXPECT_EQ(job.comm.version(), "shm through pinned memory");
  });
}

TEST(StagedCommunicator, OperationsOfAllSizesFollowEachOtherAndTheCaller) {
  testing::run_threads(2, [](Communicator& host) {
    Job job(host);
    const Stream caller(job.device);
    StreamOrder order(job.device, job.comm);
    for (const std::size_t count : {3U, 1000U, 20U, 70000U}) {
      const Array in = testing::repeated(TNT_FLOAT32, count, [](std::size_t i) { return static_cast<double>(i); });
      const OnDevice data(job.device, caller.get(), in);
      for (int i = 0; i < 3; ++i) {
        order(caller.get(), [&] { all_reduce(job.comm, data.get(), data.get(), count, TNT_FLOAT32, TNT_SUM, "a bucket"); });
      }
      EXPECT_EQ(data.read().get(2), 16.0);
    }
  });
}

TEST(StagedCommunicator, APartHasItsOwnRanks) {
  testing::run_threads(3, [](Communicator& host) {
    Job job(host);
    const int color = host.rank() == 2 ? -1 : 0;
    const auto part_host = host.split(color, -host.rank(), call());
    const auto part = job.comm.split(color, -host.rank(), part_host.get());
    ASSERT_EQ(part == nullptr, host.rank() == 2);
    if (part) {
      EXPECT_EQ(part->rank(), 1 - host.rank());
    }
  });
}

TEST(StagedCommunicator, WhoIsMissingIsNamedByTheHost) {
  const std::string message = testing::common_error(3, TNT_TIMEOUT, [](Communicator& host) {
    Job job(host, 0.4);
    const OnDevice data(job.device, job.comm.stream(), Array(TNT_FLOAT32, 4));
    if (host.rank() != 1) all_reduce(job.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "bucket 3 of gradients");
    for (const Deadline deadline(testing::default_timeout); !deadline.passed();) {
      job.comm.throw_if_aborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.4 s"), 0U) << message;
  EXPECT_NE(message.find("bucket 3 of gradients"), std::string::npos) << message;
}

TEST(StagedCommunicator, RefusesToBeCaptured) {
  testing::run_threads(1, [](Communicator& host) {
    Job job(host);
    const OnDevice data(job.device, job.comm.stream(), Array(TNT_FLOAT32, 4));
    job.device.synchronize(job.comm.stream());
    job.device.begin_capture(job.comm.stream());
    try {
      all_reduce(job.comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
    }
    (void)job.device.end_capture(job.comm.stream());
  });
}

}  // namespace
}  // namespace tnt
