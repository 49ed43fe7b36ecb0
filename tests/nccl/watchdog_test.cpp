// The watchdog, with a fake library: what it observes on the device, when it ends the job, and its cost.
#include "comm/nccl/watchdog.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "comm/local.hpp"
#include "support/simulated_device.hpp"

namespace tnt {
namespace {

using testing::SimulatedDevice;

constexpr Call sum_of_4{.kind = Call::all_reduce, .dtype = TNT_FLOAT32, .op = TNT_SUM, .count = 4};

struct Library final : WatchedComm {
  std::atomic<bool> faulty{false};
  std::atomic<int> aborts{0};
  std::optional<Error> async_error() override {
    if (!faulty) return std::nullopt;
    return Error(TNT_SYSTEM, "the library has failed");
  }
  void abort() noexcept override { ++aborts; }
};

class WatchdogTest : public ::testing::Test {
 protected:
  void SetUp() override { stream = std::make_unique<Stream>(device); }
  Watchdog watch(double timeout) { return {device, stream->get(), host, nullptr, 0, timeout, library}; }

  // Blocks the stream until it is released.
  void hold() { hold(*stream); }
  void hold(const Stream& which) {
    device.enqueue(
        which.get(), {}, {},
        [this] {
          while (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        "a computation");
  }

  std::string ending(const Watchdog& watchdog) {
    for (const Deadline deadline(30); !deadline.passed();) {
      try {
        watchdog.throw_if_aborted();
      } catch (const Error& error) {
        return error.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return "did not end";
  }

  std::atomic<bool> blocked{true};
  SimulatedDevice device{0, {.progress = testing::Progress::thread}};
  LocalCommunicator host;
  Library library;
  std::unique_ptr<Stream> stream;
};

TEST_F(WatchdogTest, WhatEndsInTimeIsForgotten) {
  Watchdog watchdog = watch(0.2);
  for (int i = 0; i < 5; ++i) watchdog(sum_of_4, "", [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(watchdog.aborted());
  // events are reused
  const int before = device.calls(testing::Call::make_event);
  for (int i = 0; i < 5; ++i) watchdog(sum_of_4, "", [] {});
  EXPECT_EQ(device.calls(testing::Call::make_event), before);
  watchdog.stop();
  EXPECT_EQ(library.aborts, 0);
}

TEST_F(WatchdogTest, TheDeadlineBeginsWhenTheDeviceComesToIt) {
  Watchdog watchdog = watch(0.2);
  hold();
  watchdog(sum_of_4, "", [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_FALSE(watchdog.aborted());  // a long computation is not a communication failure
  blocked = false;
  device.synchronize(stream->get());
  watchdog.stop();
  EXPECT_EQ(library.aborts, 0);
}

// The event that orders two streams is the beginning of the next operation, and only of that.
TEST_F(WatchdogTest, TheDeadlineBeginsWhenWhatIsFollowedHasEnded) {
  const Stream other(device);
  Watchdog watchdog = watch(0.2);
  const int before = device.calls(testing::Call::record);
  hold(other);
  watchdog.follow(other.get());
  watchdog(sum_of_4, "the first", [] {});
  EXPECT_EQ(device.calls(testing::Call::record) - before, 2);
  watchdog(sum_of_4, "the second", [] {});
  EXPECT_EQ(device.calls(testing::Call::record) - before, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_FALSE(watchdog.aborted());
  blocked = false;
  device.synchronize(stream->get());
  blocked = true;
  watchdog.follow(other.get());
  watchdog(sum_of_4, "the third", [&] { hold(); });
  const std::string message = ending(watchdog);
  EXPECT_NE(message.find("(operation 3, the third) has not finished within 0.2 s"), std::string::npos) << message;
  blocked = false;
}

TEST_F(WatchdogTest, WhatDoesNotEndIsAborted) {
  Watchdog watchdog = watch(0.2);
  watchdog(sum_of_4, "the first", [] {});
  watchdog(sum_of_4, "the second", [&] { hold(); });
  const std::string message = ending(watchdog);
  EXPECT_EQ(message.find("rank 0: all_reduce sum of 4 float32 (operation 2, the second) has not finished within 0.2 s: "), 0U)
      << message;
  EXPECT_EQ(host.async_error()->what(), message);
  watchdog.stop();
  EXPECT_EQ(library.aborts, 1);
  blocked = false;
}

TEST_F(WatchdogTest, MessagesAreNotNumbered) {
  Watchdog watchdog = watch(0.2);
  const Call receive{.kind = Call::recv, .dtype = TNT_FLOAT32, .root = 1, .count = 4};
  watchdog(receive, "", [&] { hold(); });
  const std::string message = ending(watchdog);
  EXPECT_EQ(message.find("rank 0: recv of 4 float32 from rank 1 has not finished within 0.2 s: its peer has not reached it"),
            0U)
      << message;
  blocked = false;
}

TEST_F(WatchdogTest, AFaultEndsTheJobUnlessTheHostKnowsBetter) {
  Watchdog watchdog = watch(2.0);
  library.faulty = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  host.abort(TNT_PEER_LOST, "rank 1 (process 7) died");
  EXPECT_EQ(ending(watchdog), "rank 1 (process 7) died");
  watchdog.stop();
  EXPECT_EQ(library.aborts, 1);
}

TEST_F(WatchdogTest, AFaultAloneIsTheReason) {
  Watchdog watchdog = watch(0.4);
  library.faulty = true;
  EXPECT_EQ(ending(watchdog), "rank 0: the library has failed");
}

TEST_F(WatchdogTest, AnErrorOfTheDevicesEndsTheJob) {
  Watchdog watchdog = watch(5.0);
  device.fail_at(testing::Call::completed);
  watchdog(sum_of_4, "a bucket", [] {});
  const std::string message = ending(watchdog);
  EXPECT_EQ(message.find("rank 0: all_reduce sum of 4 float32 (operation 1, a bucket): "), 0U) << message;
}

TEST_F(WatchdogTest, NothingIsFollowedInACapture) {
  Watchdog watchdog = watch(0.2);
  device.begin_capture(stream->get());
  const int before = device.calls(testing::Call::record);
  watchdog(sum_of_4, "", [] {});
  EXPECT_EQ(device.calls(testing::Call::record), before);
  (void)device.end_capture(stream->get());
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_FALSE(watchdog.aborted());
}

TEST_F(WatchdogTest, AStepPaysForTwoRecords) {
  Watchdog watchdog = watch(5.0);
  const int before = device.calls(testing::Call::record);
  watchdog(sum_of_4, "", [] {});
  EXPECT_EQ(device.calls(testing::Call::record) - before, 2);
  EXPECT_EQ(device.calls(testing::Call::synchronize), 0);
}

}  // namespace
}  // namespace tnt
