// Memory of simulated devices: its owner, its ends, and that the host cannot access it.
#include "support/simulated_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/handles.hpp"
#include "support/simulated_device.hpp"

namespace tnt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SimulatedMemory, PlacesAreKnownOfEveryDevice) {
  SimulatedDevice first(0);
  SimulatedDevice second(1);
  const Stream stream(second);
  const DeviceBuffer memory(second, 100, stream.get());
  const PinnedBuffer pinned(first, 100);
  int local = 0;
  EXPECT_EQ(first.pointer_attributes(memory.get()).kind, PointerAttributes::Kind::device);
  EXPECT_EQ(first.pointer_attributes(memory.get()).device, 1);
  EXPECT_EQ(first.pointer_attributes(static_cast<std::byte*>(memory.get()) + 99).kind, PointerAttributes::Kind::device);
  EXPECT_EQ(first.pointer_attributes(static_cast<std::byte*>(memory.get()) + 100).kind, PointerAttributes::Kind::host);
  EXPECT_EQ(first.pointer_attributes(pinned.get()).kind, PointerAttributes::Kind::pinned);
  EXPECT_EQ(first.pointer_attributes(&local).kind, PointerAttributes::Kind::host);
  EXPECT_EQ(first.pointer_attributes(nullptr).kind, PointerAttributes::Kind::host);
  EXPECT_EQ(first.device_of(stream.get()), 1);
}

TEST(SimulatedMemoryDeathTest, TheHostCannotTouchIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SimulatedDevice device;
  const Stream stream(device);
  const DeviceBuffer memory(device, 100, stream.get());
  EXPECT_DEATH(std::memset(memory.get(), 0, 1), "the host touched memory of a simulated device");
  EXPECT_DEATH(
      {
        device.launch_host_func([](void* data) { std::memset(data, 0, 1); }, memory.get(), stream.get());
        device.synchronize(stream.get());
      },
      "the host touched memory of a simulated device");
}

class SimulatedBorders : public ::testing::Test {
 protected:
  void TearDown() override { device.synchronize(stream.get()); }
  std::vector<std::string> reports() {
    device.synchronize(stream.get());
    return device.take_reports();
  }

  SimulatedDevice device;
  Stream stream{device};
  DeviceBuffer memory{device, 100, stream.get()};
};

TEST_F(SimulatedBorders, WorkPastTheEndIsReportedAndDoesNotRun) {
  device.name_memory(memory.get(), "bucket 1");
  device.fill_zero(memory.get(), 104, stream.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("writes 4 bytes past the end of bucket 1")));
}

TEST_F(SimulatedBorders, WorkThatWritesMoreThanItSaysIsFoundAtTheRelease) {
  {
    const DeviceBuffer small(device, 10, stream.get());
    device.name_memory(small.get(), "small");
    void* at = small.get();
    device.enqueue(
        stream.get(), {}, {{at, 10}}, [=] { std::memset(at, 1, 11); }, "write");
  }
  EXPECT_THAT(reports(), ElementsAre("somebody wrote before or behind small"));
}

TEST_F(SimulatedBorders, ReleasedMemoryIsNotToBeUsed) {
  void* used = device.allocate(8, stream.get());
  device.name_memory(used, "gone");
  device.release(used, stream.get());
  device.fill_zero(used, 8, stream.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("writes gone after it was released")));
  device.release(used, stream.get());
  EXPECT_THAT(reports(), ElementsAre("something was released that is no memory of this device"));
  EXPECT_EQ(device.pointer_attributes(used).kind, PointerAttributes::Kind::host);
}

TEST_F(SimulatedBorders, MemoryOfOthersIsReported) {
  SimulatedDevice other(1);
  const Stream others(other);
  const DeviceBuffer foreign(other, 8, others.get());
  device.copy(memory.get(), foreign.get(), 8, stream.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("of another device")));
  std::int64_t local = 0;
  device.copy(memory.get(), &local, 8, stream.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("host memory that is not pinned")));
}

TEST_F(SimulatedBorders, FreshAndReleasedMemoryHoldRubbish) {
  device.synchronize(stream.get());
  EXPECT_EQ(device.values<unsigned char>(memory.get(), 1)[0], 0xA5);
}

void forget_stream() {
  SimulatedDevice device;
  device.name_stream(device.make_stream(Priority::normal), "NCCL's");
}

void forget_event() {
  SimulatedDevice device;
  (void)device.make_event();
}

void forget_memory() {
  SimulatedDevice device;
  const Stream stream(device);
  device.name_memory(device.allocate(100, stream.get()), "bucket 1");
}

TEST(SimulatedMemory, WhatIsNeverReleasedFailsTheTest) {
  EXPECT_NONFATAL_FAILURE(forget_memory(), "bucket 1 (100 bytes) was never released");
  EXPECT_NONFATAL_FAILURE(forget_stream(), "NCCL's was never destroyed");
  EXPECT_NONFATAL_FAILURE(forget_event(), "1 events were never destroyed");
}

}  // namespace
}  // namespace tnt::testing
