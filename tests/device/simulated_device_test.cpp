// The simulated device finds every kind of missing order, and reports nothing where the order is correct.
#include "support/simulated_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "device/handles.hpp"
#include "kernels/cuda/bucket_layout.hpp"

namespace tnt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two streams, an event, device memory and pinned memory; at the end everything must be idle and released.
class SimulatedOrder : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::size_t bytes = 1024;

  void SetUp() override {
    device.name_stream(one.get(), "one");
    device.name_stream(two.get(), "two");
    device.name_memory(memory.get(), "gradient");
    device.name_memory(pinned.get(), "staging");
    device.synchronize(one.get());  // the memory is allocated for all streams
  }
  void TearDown() override { device.run_all(); }

  void write(const Stream& stream, std::size_t begin = 0, std::size_t end = bytes) {
    auto* at = static_cast<std::byte*>(memory.get()) + begin;
    device.enqueue(
        stream.get(), {}, {{at, end - begin}}, [=] { std::memset(at, 1, end - begin); }, "write");
  }
  void read(const Stream& stream, std::size_t begin = 0, std::size_t end = bytes) {
    auto* at = static_cast<std::byte*>(memory.get()) + begin;
    device.enqueue(
        stream.get(), {{at, end - begin}}, {}, [] {}, "read");
  }
  std::vector<std::string> reports() {
    device.run_all();
    for (const Stream* stream : {&one, &two}) device.synchronize(stream->get());
    return device.take_reports();
  }

  SimulatedDevice device{0, {.seed = GetParam()}};
  Stream one{device};
  Stream two{device};
  Event event{device};
  DeviceBuffer memory{device, bytes, one.get()};
  PinnedBuffer pinned{device, bytes};
};

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedOrder, ::testing::Range(1U, 6U));

TEST_P(SimulatedOrder, OneStreamKeepsItsOrder) {
  write(one);
  read(one);
  write(one);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, AReadThatDoesNotWaitForAWriteIsReported) {
  write(one, 0, 512);
  read(two, 256, 1024);
  // whichever ran first
  EXPECT_THAT(reports(),
              ElementsAre(::testing::AnyOf(
                  ::testing::MatchesRegex("read \\(work [0-9]+ on two\\) reads bytes 256 to 512 of gradient, which "
                                          "write \\(work [0-9]+ on one\\) may still be writing: nothing orders .*"),
                  ::testing::MatchesRegex("write \\(work [0-9]+ on one\\) writes bytes 256 to 512 of gradient, which "
                                          "read \\(work [0-9]+ on two\\) may still be reading: nothing orders .*"))));
}

TEST_P(SimulatedOrder, AWriteThatDoesNotWaitForAReadIsReported) {
  read(one);
  write(two);
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, TwoWritersAreReported) {
  write(one);
  write(two);
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, OtherBytesAndTwoReadersAreNot) {
  write(one, 0, 512);
  write(two, 512, 1024);
  device.synchronize(one.get());
  device.synchronize(two.get());
  read(one);
  read(two);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, AnEventOrders) {
  write(one);
  event.record(one.get());
  event.wait_on(two.get());
  read(two);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, AnEventRecordedBeforeTheWriteDoesNot) {
  event.record(one.get());
  write(one);
  event.wait_on(two.get());
  read(two);
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, AnEventThatWasNeverRecordedIsNoWait) {
  write(one);
  event.wait_on(two.get());
  read(two);
  event.record(one.get());  // too late
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, AWaitIsForTheRecordBeforeIt) {
  write(one, 0, 512);
  event.record(one.get());
  event.wait_on(two.get());
  write(one, 512, 1024);
  event.record(one.get());
  read(two, 0, 512);  // ordered by the first record
  EXPECT_THAT(reports(), IsEmpty());
  write(one, 512, 1024);
  read(two, 512, 1024);  // the second record came after the wait
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("bytes 512 to 1024")));
}

TEST_P(SimulatedOrder, WhatComesBeforeTheWaitIsNotOrdered) {
  read(two);
  write(one);
  event.record(one.get());
  event.wait_on(two.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, OrdersAddUpOverStreams) {
  const Stream three(device);
  const Event second(device);
  write(one);
  event.record(one.get());
  event.wait_on(three.get());
  second.record(three.get());
  second.wait_on(two.get());
  write(two);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, TheHostThatWaitedOrders) {
  write(one);
  device.synchronize(one.get());
  read(two);
  event.record(two.get());
  while (!event.completed()) {
  }
  write(one);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, TheHostThatFoundAStreamIdleOrders) {
  write(one);
  while (!device.idle(one.get())) {
  }
  read(two);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, HostMemoryIsCheckedAgainstTheDevicesCopies) {
  device.host_writes(pinned.get(), bytes, "fills it");
  device.copy(memory.get(), pinned.get(), bytes, one.get());
  EXPECT_THAT(device.take_reports(), IsEmpty());
  device.run_all();
  device.host_writes(pinned.get(), bytes, "fills it again");
  EXPECT_THAT(device.take_reports(),
              ElementsAre(::testing::MatchesRegex("the host \\(fills it again\\) writes bytes 0 to 1024 of staging, which copy "
                                                  "\\(work [0-9]+ on one\\) may still be reading: nothing orders the two")));
  device.synchronize(one.get());
  device.host_writes(pinned.get(), bytes, "fills it once more");
  device.copy(pinned.get(), memory.get(), bytes, one.get());
  event.record(one.get());
  while (!event.completed()) {
  }
  device.host_reads(pinned.get(), bytes);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedOrder, AFunctionOfTheHostHappensInItsStream) {
  std::function<void()> reads = [&] { device.host_reads(pinned.get(), bytes); };
  std::function<void()> writes = [&] { device.host_writes(pinned.get(), bytes); };
  const auto run = [](void* function) { (*static_cast<std::function<void()>*>(function))(); };
  device.copy(pinned.get(), memory.get(), bytes, one.get());
  device.launch_host_func(run, &reads, one.get());
  device.run_all();
  device.host_reads(pinned.get(), bytes);  // ordered by the function
  EXPECT_THAT(reports(), IsEmpty());
  device.launch_host_func(run, &writes, two.get());
  device.copy(memory.get(), pinned.get(), bytes, one.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedOrder, MemoryThatIsTakenOnAnotherStreamIsNotThereYet) {
  const DeviceBuffer late(device, 256, one.get());
  device.fill_zero(late.get(), 256, two.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("allocate")));
}

TEST_P(SimulatedOrder, MemoryThatIsReleasedWhileInUseIsReported) {
  void* used = device.allocate(256, one.get());
  device.fill_zero(used, 256, one.get());
  event.record(one.get());
  event.wait_on(two.get());
  device.copy(memory.get(), used, 256, two.get());
  device.release(used, one.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("release")));
}

TEST_P(SimulatedOrder, MemoryThatIsReleasedInOrderIsNot) {
  void* used = device.allocate(256, one.get());
  device.fill_zero(used, 256, one.get());
  event.record(one.get());
  event.wait_on(two.get());
  device.copy(memory.get(), used, 256, two.get());
  event.record(two.get());
  event.wait_on(one.get());
  device.release(used, one.get());
  EXPECT_THAT(reports(), IsEmpty());
}

// A bucket whose tiles are in device memory.
class SimulatedBucket : public SimulatedOrder {
 protected:
  void SetUp() override {
    SimulatedOrder::SetUp();
    layout = gpu::make_layout(std::vector<gpu::TensorShape>{{100, TNT_FLOAT32}, {7, TNT_FLOAT32}}, TNT_FLOAT32);
    auto* values = static_cast<float*>(memory.get());
    arguments = {{values, values, 0.5}, {values + 100, values + 100, 2.0}};
    launch = layout.launch(static_cast<gpu::Tile*>(tiles.get()), arguments.data(), bucket.get());
    device.synchronize(one.get());
    device.write(tiles.get(), layout.tiles.data(), layout.tiles.size() * sizeof(gpu::Tile));
    const std::vector<float> ones(bytes / sizeof(float), 1.0F);
    device.write(memory.get(), ones.data(), bytes);
  }

  gpu::BucketLayout layout;
  std::vector<gpu::TensorArgument> arguments;
  gpu::BucketLaunch launch;
  DeviceBuffer tiles{device, 1024, one.get()};
  DeviceBuffer bucket{device, bytes, one.get()};
};

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedBucket, ::testing::Range(1U, 4U));

TEST_P(SimulatedBucket, KernelsDoTheirWork) {
  device.pack(launch, one.get());
  device.unpack(launch, one.get());
  device.synchronize(one.get());
  const auto values = device.values<float>(memory.get(), 108);
  EXPECT_EQ(values[0], 0.5F);
  EXPECT_EQ(values[99], 0.5F);
  EXPECT_EQ(values[100], 2.0F);
  EXPECT_EQ(values[106], 2.0F);
  EXPECT_EQ(values[107], 1.0F);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedBucket, PackingATensorThatIsStillWrittenIsReported) {
  write(one, 400, 404);  // the second tensor's first element
  device.pack(launch, two.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("bytes 400 to 404 of gradient")));
}

TEST_P(SimulatedBucket, WhatLiesBetweenTensorsIsNotTouched) {
  write(one, 428, 1024);
  device.pack(launch, two.get());
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedBucket, UnpackingWhileATensorIsReadIsReported) {
  device.pack(launch, one.get());
  event.record(one.get());
  event.wait_on(two.get());
  read(one, 0, 4);
  device.unpack(launch, two.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("bytes 0 to 4 of gradient")));
}

TEST_P(SimulatedBucket, TheAddressesAreReadBeforeTheCallReturns) {
  device.pack(launch, one.get());
  arguments = {{reinterpret_cast<void*>(0x10), nullptr, 1.0}, {reinterpret_cast<void*>(0x10), nullptr, 1.0}};  // NOLINT
  device.synchronize(one.get());
  EXPECT_EQ(device.values<float>(bucket.get(), 100), std::vector<float>(100, 0.5F));
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedBucket, NewTilesWhileTheKernelMayStillReadThemAreReported) {
  device.pack(launch, one.get());
  device.fill_zero(tiles.get(), sizeof(gpu::Tile), two.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("nothing orders the two")));
}

TEST_P(SimulatedBucket, ATensorOfScaleZeroIsNotRead) {
  arguments[0] = {reinterpret_cast<void*>(0x10), nullptr, 0.0};  // NOLINT(performance-no-int-to-ptr)
  device.pack(launch, one.get());
  device.synchronize(one.get());
  EXPECT_EQ(device.values<float>(bucket.get(), 100), std::vector<float>(100, 0.0F));
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_P(SimulatedBucket, AReductionIsChecked) {
  const void* sources[] = {memory.get(), bucket.get()};
  write(two, 0, 4);
  device.fill_zero(bucket.get(), bytes, one.get());
  device.reduce(bucket.get(), sources, 2, 100, TNT_FLOAT32, one.get());
  EXPECT_THAT(reports(), ElementsAre(HasSubstr("bytes 0 to 4 of gradient")));
}

}  // namespace
}  // namespace tnt::testing
