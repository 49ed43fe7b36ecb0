// Handles release what they own, once, also after a move.
#include "device/handles.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/simulated_device.hpp"

namespace tnt {
namespace {

using testing::SimulatedDevice;

// The device itself reports what is released twice or never.
TEST(Handles, WhatIsMovedIsGivenBackOnce) {
  SimulatedDevice device;
  std::vector<Stream> streams;
  std::vector<Event> events;
  std::vector<DeviceBuffer> buffers;
  std::vector<PinnedBuffer> pinned;
  for (int i = 0; i < 5; ++i) {
    streams.emplace_back(device, Priority::high);
    events.emplace_back(device);
    buffers.emplace_back(device, 16, streams[0].get());
    pinned.emplace_back(device, 16);
  }
  EXPECT_EQ(device.priority_of(streams[0].get()), Priority::high);
  const Stream taken = std::move(streams.back());
  EXPECT_EQ(streams.back().get(), nullptr);
  EXPECT_NE(taken.get(), nullptr);
}

TEST(Handles, EmptyBuffersHoldNothing) {
  SimulatedDevice device;
  const Stream stream(device);
  const DeviceBuffer none(device, 0, stream.get());
  const PinnedBuffer no_pinned(device, 0);
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_EQ(no_pinned.get(), nullptr);
  EXPECT_EQ(device.calls(testing::Call::allocate), 0);
}

TEST(Handles, EventsOrderStreams) {
  SimulatedDevice device;
  const Stream one(device);
  const Stream two(device);
  const Event event(device);
  EXPECT_TRUE(event.completed());  // never recorded
  const DeviceBuffer memory(device, 16, one.get());
  device.fill_zero(memory.get(), 16, one.get());
  event.record(one.get());
  event.wait_on(two.get());
  device.fill_zero(memory.get(), 16, two.get());
  device.synchronize(two.get());
  EXPECT_TRUE(event.completed());
}

}  // namespace
}  // namespace tnt
