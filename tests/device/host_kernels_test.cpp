// The kernels of the tests' reference (support/host_kernels.hpp) compute what kernels/cuda/bucket_kernels.hpp describes.
#include "support/host_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "common/error.hpp"
#include "kernels/cpu/half.hpp"
#include "kernels/cuda/bucket_layout.hpp"

namespace tnt {
namespace {

std::vector<float> counting(std::size_t count, float first = 1.0F) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// A float32 and a bfloat16 tensor in a bfloat16 bucket.
class HostBucket : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = to_bfloat16(static_cast<float>(i) + 0.5F);
    layout = gpu::make_layout(std::vector<gpu::TensorShape>{{values.size(), TNT_FLOAT32}, {halves.size(), TNT_BFLOAT16}},
                              TNT_BFLOAT16);
    bucket.assign(layout.count, bfloat16{0xFFFF});
    statistics.resize(layout.tiles.size());
    arguments = {{values.data(), values.data(), 0.5}, {halves.data(), halves.data(), 2.0}};
    launch = layout.launch(layout.tiles.data(), arguments.data(), bucket.data());
    launch.statistics = statistics.data();
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
  host::pack(launch);
  std::vector<bfloat16> expected(layout.count, bfloat16{0});
  for (std::size_t i = 0; i < values.size(); ++i) expected[layout.slots[0] + i] = to_bfloat16(values[i] * 0.5F);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    expected[layout.slots[1] + i] = to_bfloat16(to_float(halves[i]) * 2.0F);
  }
  for (std::size_t i = 0; i < layout.count; ++i) ASSERT_EQ(bucket[i].bits, expected[i].bits) << i;
}

TEST_F(HostBucket, UnpackCastsBack) {
  host::pack(launch);
  const auto before = values;
  arguments[1].out = nullptr;
  halves[0] = bfloat16{0x1234};
  host::unpack(launch);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], to_float(to_bfloat16(before[i] * 0.5F)));
  EXPECT_EQ(halves[0].bits, 0x1234);  // its result is not wanted
}

TEST_F(HostBucket, StatisticsAreOfTheValuesAsTheyAreWritten) {
  values[7] = std::numeric_limits<float>::infinity();
  values[8] = std::nanf("");
  arguments[0].scale = 0.0;  // so it is not read
  host::pack(launch);
  gpu::Statistics total;
  host::sum_statistics(statistics.data(), launch.n_tiles, &total);
  double expected = 0.0;
  for (const bfloat16 half : halves) expected += std::pow(to_float(to_bfloat16(to_float(half) * 2.0F)), 2.0);
  EXPECT_DOUBLE_EQ(total.sum_of_squares, expected);
  EXPECT_EQ(total.non_finite, 0U);
  arguments[0].scale = 1.0;
  host::pack(launch);
  host::sum_statistics(statistics.data(), launch.n_tiles, &total);
  EXPECT_EQ(total.non_finite, 2U);
}

TEST(HostKernels, ReduceAddsNeighboursFirst) {
  // (big + 1) + (-big + 1) and ((big + 1) - big) + (1 + 8): big + 1 is big
  const float big = 0x1p25F;
  const std::vector<std::vector<float>> values{{big}, {1.0F}, {-big}, {1.0F}, {8.0F}};
  const void* sources[] = {values[0].data(), values[1].data(), values[2].data(), values[3].data(), values[4].data()};
  float out = 0.0F;
  host::reduce(&out, sources, 4, 1, TNT_FLOAT32);
  EXPECT_EQ(out, 0.0F);
  host::reduce(&out, sources, 5, 1, TNT_FLOAT32);
  EXPECT_EQ(out, 9.0F);
  EXPECT_THROW(host::reduce(&out, sources, 0, 1, TNT_FLOAT32), Error);
}

TEST(HostKernels, ReduceOfHalvesRoundsOnce) {
  std::vector<bfloat16> one{to_bfloat16(256.0F)};
  std::vector<bfloat16> small{to_bfloat16(1.0F)};  // lost if each sum is rounded
  const void* sources[] = {one.data(), small.data(), small.data()};
  bfloat16 out{};
  host::reduce(&out, sources, 3, 1, TNT_BFLOAT16);
  EXPECT_EQ(to_float(out), 258.0F);
}

TEST(HostKernels, ReduceOfIntegersIsExact) {
  const std::vector<std::int64_t> big{std::numeric_limits<std::int64_t>::max()};
  const std::vector<std::int64_t> less{-5};
  const void* sources[] = {big.data(), less.data()};
  std::int64_t out = 0;
  host::reduce(&out, sources, 2, 1, TNT_INT64);
  EXPECT_EQ(out, std::numeric_limits<std::int64_t>::max() - 5);
}

}  // namespace
}  // namespace tnt
