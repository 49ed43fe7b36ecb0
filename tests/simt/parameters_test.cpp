// Buckets of many tensors with an old driver, whose kernels take 4 KiB of parameters; statistics over several launches.
#include "simt/parameters.hpp"

#include <gtest/gtest.h>

#include "simt/bucket_case.hpp"
#include "simt/kernel_runs.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

BucketCase case_of(std::size_t n, bool mixed) {
  std::vector<TensorShape> tensors(n, {5, TNT_FLOAT32});
  if (mixed) tensors[0].dtype = TNT_FLOAT64;
  return BucketCase({.tensors = std::move(tensors), .tensors_lie = Misalignment::no, .whole_numbers = true});
}

TEST(Parameters, OfAnOldDriverHoldFewTensors) {
  set_max_tensors_per_launch(few_tensors);
  BucketCase test = case_of(2 * few_tensors + 7, false);
  run_pack(test.launch());
  test.expect_packed();
  set_max_tensors_per_launch(many_tensors);
}

// Blocks of the general kernels take tiles in turn on any device.
TEST(Parameters, FewBlocksNeedNoBulkCopies) {
  BucketCase test = case_of(99, false);
  EXPECT_NE(kernel_of(test.launch(5), Direction::pack), KernelKind::general);
  set_bulk_copies(false);
  EXPECT_EQ(kernel_of(test.launch(5), Direction::pack), KernelKind::general);
  run_pack(test.launch(5));
  test.expect_packed();
  set_bulk_copies(true);
}

TEST(Parameters, OfTheGeneralKernelsHoldFewTensors) {
  BucketCase test = case_of(2 * few_tensors + 7, true);
  BucketLaunch launch = test.launch();
  launch.statistics = test.statistics.data();
  run_pack(launch);
  test.expect_packed();
  Statistics total;
  run_sum_statistics(test.statistics.data(), launch.n_tiles, &total);
  const auto* values = reinterpret_cast<const float*>(test.bucket.data());
  double expected = 0.0;
  for (std::size_t i = 0; i < test.layout.count; ++i) expected += static_cast<double>(values[i]) * values[i];
  EXPECT_EQ(total.sum_of_squares, expected);
  EXPECT_GT(expected, 0.0);
}

}  // namespace
}  // namespace tnt::gpu
