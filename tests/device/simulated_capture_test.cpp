// Captures of the simulated device: what is refused, what is recorded, and that replays are ordered like the capture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "common/error.hpp"
#include "device/handles.hpp"
#include "support/simulated_device.hpp"

namespace tnt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimulatedCapture : public ::testing::Test {
 protected:
  static constexpr std::size_t bytes = 64;

  void SetUp() override { device.synchronize(one.get()); }
  void TearDown() override { device.run_all(); }
  // Adds 1 to the first byte.
  void add(const Stream& stream) {
    auto* at = static_cast<unsigned char*>(memory.get());
    device.enqueue(
        stream.get(), {{at, bytes}}, {{at, bytes}}, [=] { ++*at; }, "add");
  }
  unsigned char value() {
    device.synchronize(one.get());
    return device.values<unsigned char>(memory.get(), 1)[0];
  }
  void expect_refused(const std::function<void()>& call, const char* why) {
    EXPECT_THROW(call(), Error);
    EXPECT_THAT(device.take_reports(), ElementsAre(HasSubstr(why)));
  }

  SimulatedDevice device;
  Stream one{device};
  Stream two{device};
  Event event{device};
  Event back{device};
  DeviceBuffer memory{device, bytes, one.get()};
};

TEST_F(SimulatedCapture, WhatIsCapturedRunsWhenItIsReplayed) {
  device.fill_zero(memory.get(), bytes, one.get());
  EXPECT_FALSE(device.capturing(one.get()));
  device.begin_capture(one.get());
  EXPECT_TRUE(device.capturing(one.get()));
  add(one);
  add(one);
  const auto graph = device.end_capture(one.get());
  EXPECT_FALSE(device.capturing(one.get()));
  EXPECT_EQ(value(), 0);
  device.replay(graph, one.get());
  EXPECT_EQ(value(), 2);
  device.replay(graph, one.get());
  device.replay(graph, one.get());
  EXPECT_EQ(value(), 6);
}

TEST_F(SimulatedCapture, StreamsJoinByEventsAndComeBack) {
  device.fill_zero(memory.get(), bytes, one.get());
  device.begin_capture(one.get());
  add(one);
  event.record(one.get());
  event.wait_on(two.get());
  EXPECT_TRUE(device.capturing(two.get()));
  add(two);
  back.record(two.get());
  back.wait_on(one.get());
  add(one);
  const auto graph = device.end_capture(one.get());
  EXPECT_FALSE(device.capturing(two.get()));
  for (int i = 0; i < 3; ++i) device.replay(graph, one.get());
  EXPECT_EQ(value(), 9);
}

TEST_F(SimulatedCapture, AMissingOrderInACaptureIsReported) {
  device.begin_capture(one.get());
  event.record(one.get());
  event.wait_on(two.get());
  add(one);
  add(two);
  back.record(two.get());
  back.wait_on(one.get());
  const auto graph = device.end_capture(one.get());
  device.replay(graph, one.get());
  device.synchronize(one.get());
  EXPECT_THAT(device.take_reports(), ::testing::Each(HasSubstr("nothing orders the two")));
}

TEST_F(SimulatedCapture, AStreamThatDoesNotComeBackIsRefused) {
  device.begin_capture(one.get());
  event.record(one.get());
  event.wait_on(two.get());
  back.record(two.get());
  back.wait_on(one.get());
  add(two);  // after the streams joined again
  expect_refused([&] { (void)device.end_capture(one.get()); }, "has not come back");
  EXPECT_FALSE(device.capturing(two.get()));
}

TEST_F(SimulatedCapture, WhatCudaRefusesIsRefused) {
  event.record(two.get());
  device.begin_capture(one.get());
  expect_refused([&] { device.synchronize(one.get()); }, "is being captured and was synchronized");
  expect_refused([&] { (void)device.idle(one.get()); }, "asked whether it is idle");
  expect_refused([&] { (void)device.allocate_pinned(8); }, "pinned memory was allocated while");
  expect_refused([&] { (void)device.allocate(8, one.get()); }, "memory was allocated on a stream that is captured");
  expect_refused([&] { event.wait_on(one.get()); }, "recorded outside of the capture");
  back.record(one.get());
  expect_refused([&] { (void)back.completed(); }, "recorded in a capture was polled");
  while (!event.completed()) {  // of another stream: allowed
  }
  EXPECT_TRUE(device.idle(two.get()));
  (void)device.end_capture(one.get());
  expect_refused([&] { back.wait_on(two.get()); }, "recorded in a capture that has ended");
}

}  // namespace
}  // namespace tnt::testing
