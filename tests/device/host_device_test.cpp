// The host's device: what is enqueued has happened, and the kernels on buckets give what kernels/cuda/bucket_kernels.hpp says.
#include "device/host_device.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "device/handles.hpp"
#include "kernels/cpu/half.hpp"
#include "kernels/cuda/bucket_layout.hpp"
#include "support/effort.hpp"

namespace tnt {
namespace {

class HostDeviceTest : public ::testing::Test {
 protected:
  HostDevice device;
  Stream stream{device};
};

std::vector<float> counting(std::size_t count, float first = 1.0F) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(HostDeviceTest, EverythingHappensAtOnce) {
  const DeviceBuffer memory(device, 4 * sizeof(float), stream.get());
  const std::vector<float> from = counting(4);
  device.copy(memory.get(), from.data(), 4 * sizeof(float), stream.get());
  EXPECT_EQ(static_cast<float*>(memory.get())[3], 4.0F);
  device.fill_zero(memory.get(), sizeof(float), stream.get());
  EXPECT_EQ(static_cast<float*>(memory.get())[0], 0.0F);
  int calls = 0;
  device.launch_host_func([](void* data) { ++*static_cast<int*>(data); }, &calls, stream.get());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(device.idle(stream.get()));
  EXPECT_FALSE(device.capturing(stream.get()));
  EXPECT_EQ(device.device_of(stream.get()), device.index());
  EXPECT_EQ(device.pointer_attributes(memory.get()).kind, PointerAttributes::Kind::device);
}

TEST_F(HostDeviceTest, MoreMemoryThanThereIsIsAnError) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer ends the process instead";
  EXPECT_THROW((void)device.allocate(std::numeric_limits<std::size_t>::max() / 2, stream.get()), Error);
}

// A float32 and a bfloat16 tensor in a bfloat16 bucket.
class HostBucket : public HostDeviceTest {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = to_bfloat16(static_cast<float>(i) + 0.5F);
    layout = gpu::make_layout(std::vector<gpu::TensorShape>{{values.size(), TNT_FLOAT32}, {halves.size(), TNT_BFLOAT16}},
                              TNT_BFLOAT16);
    bucket.assign(layout.count, bfloat16{0xFFFF});
    statistics.resize(layout.tiles.size());
    arguments = {{values.data(), values.data(), 0.5}, {halves.data(), halves.data(), 2.0}};
    launch = {.tiles = layout.tiles.data(),
              .n_tiles = static_cast<std::uint32_t>(layout.tiles.size()),
              .tensors = arguments.data(),
              .bucket = bucket.data(),
              .wire = TNT_BFLOAT16,
              .statistics = statistics.data()};
  }

  std::vector<float> values = counting(20'000);
  std::vector<bfloat16> halves{33};
  gpu::BucketLayout layout;
  std::vector<bfloat16> bucket;
  std::vector<gpu::Statistics> statistics;
  std::vector<gpu::TensorArgument> arguments;
  gpu::BucketLaunch launch;
};

TEST_F(HostBucket, PackScalesCastsAndPads) {
  device.pack(launch, stream.get());
  std::vector<bfloat16> expected(layout.count, bfloat16{0});
  for (std::size_t i = 0; i < values.size(); ++i) expected[layout.slots[0] + i] = to_bfloat16(values[i] * 0.5F);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    expected[layout.slots[1] + i] = to_bfloat16(to_float(halves[i]) * 2.0F);
  }
  for (std::size_t i = 0; i < layout.count; ++i) ASSERT_EQ(bucket[i].bits, expected[i].bits) << i;
}

TEST_F(HostBucket, UnpackCastsBackAndAccumulates) {
  device.pack(launch, stream.get());
  const auto before = values;
  const auto halves_before = halves;
  device.unpack(launch, /*accumulate=*/true, stream.get());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], before[i] + to_float(to_bfloat16(before[i] * 0.5F)));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float sum = to_float(halves_before[i]) + to_float(to_bfloat16(to_float(halves_before[i]) * 2.0F));
    ASSERT_EQ(halves[i].bits, to_bfloat16(sum).bits);
  }
  arguments[1].out = nullptr;
  halves[0] = bfloat16{0x1234};
  device.unpack(launch, /*accumulate=*/false, stream.get());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], to_float(to_bfloat16(before[i] * 0.5F)));
  EXPECT_EQ(halves[0].bits, 0x1234);  // its result is not wanted
}

TEST_F(HostBucket, StatisticsAreOfTheValuesAsTheyAreWritten) {
  values[7] = std::numeric_limits<float>::infinity();
  values[8] = std::nanf("");
  arguments[0].scale = 0.0;  // not read
  device.pack(launch, stream.get());
  gpu::Statistics total;
  device.sum_statistics(statistics.data(), launch.n_tiles, &total, stream.get());
  double expected = 0.0;
  for (const bfloat16 half : halves) expected += std::pow(to_float(to_bfloat16(to_float(half) * 2.0F)), 2.0);
  EXPECT_DOUBLE_EQ(total.sum_of_squares, expected);
  EXPECT_EQ(total.non_finite, 0U);
  arguments[0].scale = 1.0;
  device.pack(launch, stream.get());
  device.sum_statistics(statistics.data(), launch.n_tiles, &total, stream.get());
  EXPECT_EQ(total.non_finite, 2U);
}

TEST_F(HostDeviceTest, ReduceTakesTheOrderThatIsAsked) {
  // sums that tell the orders apart: ((big + 1) - big) + 1 and (big + 1) + (-big + 1)
  const float big = 0x1p25F;
  const std::vector<std::vector<float>> values{{big}, {1.0F}, {-big}, {1.0F}, {8.0F}};
  const void* sources[] = {values[0].data(), values[1].data(), values[2].data(), values[3].data(), values[4].data()};
  float out = 0.0F;
  device.reduce(&out, sources, 4, 1, TNT_FLOAT32, gpu::Order::ranks, stream.get());
  EXPECT_EQ(out, 1.0F);
  device.reduce(&out, sources, 4, 1, TNT_FLOAT32, gpu::Order::tree, stream.get());
  EXPECT_EQ(out, 0.0F);
  device.reduce(&out, sources, 5, 1, TNT_FLOAT32, gpu::Order::tree, stream.get());
  EXPECT_EQ(out, 8.0F);
  EXPECT_THROW(device.reduce(&out, sources, 0, 1, TNT_FLOAT32, gpu::Order::tree, stream.get()), Error);
}

TEST_F(HostDeviceTest, ReduceOfHalvesRoundsOnce) {
  std::vector<bfloat16> one{to_bfloat16(256.0F)};
  std::vector<bfloat16> small{to_bfloat16(1.0F)};  // lost if each sum is rounded
  const void* sources[] = {one.data(), small.data(), small.data()};
  for (const gpu::Order order : {gpu::Order::ranks, gpu::Order::tree}) {
    bfloat16 out{};
    device.reduce(&out, sources, 3, 1, TNT_BFLOAT16, order, stream.get());
    EXPECT_EQ(to_float(out), 258.0F);
  }
}

TEST_F(HostDeviceTest, ReduceOfIntegersIsExact) {
  const std::vector<std::int64_t> big{std::numeric_limits<std::int64_t>::max()};
  const std::vector<std::int64_t> less{-5};
  const void* sources[] = {big.data(), less.data()};
  std::int64_t out = 0;
  device.reduce(&out, sources, 2, 1, TNT_INT64, gpu::Order::tree, stream.get());
  EXPECT_EQ(out, std::numeric_limits<std::int64_t>::max() - 5);
}

TEST_F(HostDeviceTest, AxpyRoundsOnce) {
  std::vector<float> y{1.0F, 0x1p-24F};
  const std::vector<float> x{0x1.000002p0F, 3.0F};
  device.axpy(y.data(), x.data(), 0x1.000002p0, 2, TNT_FLOAT32, stream.get());
  EXPECT_EQ(y[0], std::fma(0x1.000002p0F, 0x1.000002p0F, 1.0F));
  std::vector<std::int32_t> whole{5};
  const std::vector<std::int32_t> step{7};
  device.axpy(whole.data(), step.data(), 2.0, 1, TNT_INT32, stream.get());
  EXPECT_EQ(whole[0], 19);
  const std::vector<float> nan{std::nanf("")};
  device.axpy(y.data(), nan.data(), 0.0, 1, TNT_FLOAT32, stream.get());
  EXPECT_FALSE(std::isnan(y[0]));
}

}  // namespace
}  // namespace tnt
