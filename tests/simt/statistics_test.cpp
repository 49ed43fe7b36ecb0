// Sum of squares and count of non-finite values: correct, and the same bits for every launch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>

#include "kernels/cpu/half.hpp"
#include "simt/bucket_case.hpp"
#include "simt/kernel_runs.hpp"
#include "support/array.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

// With warps of 32 and of 64 threads: the sums must be the same.
class StatisticsInWarps : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { set_warp_size(GetParam()); }
  void TearDown() override { set_warp_size(32); }
};

Statistics packed_statistics(BucketCase& test, std::uint32_t max_ctas = 0) {
  BucketLaunch launch = test.launch(max_ctas);
  launch.statistics = test.statistics.data();
  run_pack(launch);
  Statistics total{-1.0, 99};
  run_sum_statistics(test.statistics.data(), launch.n_tiles, &total);
  return total;
}

// Over elements in memory order.
Statistics expected_statistics(const std::byte* values, tnt_dtype_t dtype, std::size_t count) {
  Statistics result;
  dispatch(dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, values + i * sizeof(T), sizeof(T));
      const auto x = static_cast<double>(tnt::Accumulator<T>::load(value));
      result.sum_of_squares += x * x;
      result.non_finite += std::isfinite(x) ? 0 : 1;
    }
  });
  return result;
}

TEST_P(StatisticsInWarps, OfAPackedBucketAreExactForWholeNumbers) {
  for (const tnt_dtype_t wire : all_dtypes) {
    for (unsigned seed = 0; seed < 12; ++seed) {
      std::mt19937 random(seed);
      BucketCase test({.wire = wire,
                       .tensors = random_tensors(wire, random),
                       .tensors_lie = seed % 2 == 0 ? Misalignment::elements : Misalignment::bytes,
                       .whole_numbers = true,
                       .some_lie_in_bucket = true,
                       .seed = seed});
      const Statistics total = packed_statistics(test, seed % 3);
      test.expect_packed();
      const Statistics expected = expected_statistics(test.bucket.data(), wire, test.layout.count);
      EXPECT_EQ(total.sum_of_squares, expected.sum_of_squares) << dtype_name(wire) << ", seed " << seed;
      EXPECT_EQ(total.non_finite, 0U);
    }
  }
}

// Also a tensor that is not wanted, or that lies in the bucket, belongs to the norm.
TEST_P(StatisticsInWarps, OfUnpackedTensorsAreOfAll) {
  int unwanted = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const tnt_dtype_t wire = float_dtypes[seed % 4];
    BucketCase test({.wire = wire, .tensors = random_tensors(wire, random), .whole_numbers = true, .seed = seed});
    BucketLaunch launch = test.launch();
    launch.statistics = test.statistics.data();
    run_unpack(launch);
    Statistics total;
    run_sum_statistics(test.statistics.data(), launch.n_tiles, &total);
    double expected = 0.0;
    for (std::size_t i = 0; i < test.out.size(); ++i) {
      const TensorShape& tensor = test.options.tensors[i];
      unwanted += test.arguments[i].out == nullptr ? 1 : 0;
      test.arguments[i].out = test.out[i].data();
      expected += expected_statistics(test.unpacked(i).data(), tensor.dtype, tensor.count).sum_of_squares;
    }
    EXPECT_EQ(total.sum_of_squares, expected) << "seed " << seed;
  }
  EXPECT_GT(unwanted, 5);
}

TEST_P(StatisticsInWarps, CountWhatIsNotFinite) {
  for (const tnt_dtype_t wire : float_dtypes) {
    for (unsigned seed = 0; seed < 12; ++seed) {
      std::mt19937 random(seed);
      BucketCase test({.wire = wire, .tensors = random_tensors(wire, random), .seed = seed});
      const Statistics total = packed_statistics(test);
      const Statistics expected = expected_statistics(test.bucket.data(), wire, test.layout.count);
      EXPECT_EQ(total.non_finite, expected.non_finite) << dtype_name(wire) << ", seed " << seed;
      EXPECT_EQ(std::isfinite(total.sum_of_squares), std::isfinite(expected.sum_of_squares));
    }
  }
}

// Squares that float32 cannot hold, beside some that it can.
TEST_P(StatisticsInWarps, NeitherOverflowNorVanish) {
  for (const float value : {3e30F, 2e-30F, 1e-42F}) {
    BucketCase test({.tensors = {{5003, TNT_FLOAT32}}, .tensors_lie = Misalignment::no});
    std::vector<float> values(5003, value);
    for (std::size_t i = 0; i < values.size(); i += 7) values[i] = 0.0F;
    std::memcpy(test.in[0].data(), values.data(), test.in[0].bytes());
    test.arguments[0] = {.in = test.in[0].data()};
    const Statistics total = packed_statistics(test);
    double expected = 0.0;
    for (const float x : values) expected += static_cast<double>(x) * x;
    EXPECT_NEAR(total.sum_of_squares / expected, 1.0, 1e-9) << value;
    EXPECT_EQ(total.non_finite, 0U);
  }
}

std::vector<Statistics> partials_of(Misalignment lie, std::uint32_t max_ctas, Schedule schedule) {
  const std::vector<TensorShape> tensors{{70'001, TNT_FLOAT32}, {333, TNT_BFLOAT16}, {9'999, TNT_FLOAT64}};
  BucketCase test({.wire = TNT_FLOAT32, .tensors = tensors, .tensors_lie = lie, .seed = 2});
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    dispatch(tensors[i].dtype, [&]<typename T>() {
      for (std::size_t k = 0; k < tensors[i].count; ++k) {
        const T value = tnt::Accumulator<T>::store(static_cast<typename tnt::Accumulator<T>::type>(normal(random)));
        std::memcpy(test.in[i].data() + k * sizeof(T), &value, sizeof(T));
      }
    });
    test.arguments[i] = {.in = test.in[i].data(), .scale = 1.0 / 3};
  }
  set_schedule(schedule, 11);
  static_cast<void>(packed_statistics(test, max_ctas));
  set_schedule(Schedule::ascending);
  return test.statistics;
}

TEST_P(StatisticsInWarps, HaveTheSameBitsWhateverTheLaunchAndTheAddresses) {
  const std::vector<Statistics> one = partials_of(Misalignment::no, 0, Schedule::ascending);
  const auto expect_same = [&](const std::vector<Statistics>& other) {
    ASSERT_EQ(other.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(other[i].sum_of_squares, one[i].sum_of_squares) << i;
  };
  EXPECT_GT(one.size(), 10U);
  expect_same(partials_of(Misalignment::no, 1, Schedule::ascending));
  expect_same(partials_of(Misalignment::no, 1, Schedule::descending));  // the tiles of one block share its memory
  expect_same(partials_of(Misalignment::elements, 7, Schedule::shuffled));
  expect_same(partials_of(Misalignment::bytes, 0, Schedule::descending));
  set_warp_size(96 - GetParam());  // the other one
  expect_same(partials_of(Misalignment::no, 1, Schedule::shuffled));
}

TEST_P(StatisticsInWarps, GiveTheFactorThatClips) {
  const auto of = [](std::initializer_list<double> squares) {
    std::vector<Statistics> all;
    for (const double sum : squares) all.push_back({.sum_of_squares = sum, .non_finite = 0});
    return all;
  };
  const auto factor = [](const std::vector<Statistics>& all, double limit) {
    return run_clip_factor(all.data(), static_cast<std::uint32_t>(all.size()), limit);
  };
  EXPECT_EQ(factor(of({9.0, 0.0, 16.0}), 1.0), 0.2);
  EXPECT_EQ(factor(of({9.0, 16.0}), 5.0), 1.0);
  EXPECT_EQ(factor(of({}), 0.5), 1.0);
  EXPECT_EQ(factor(of({std::numeric_limits<double>::infinity()}), 1.0), 1.0);
  EXPECT_EQ(factor(of({std::nan(""), 4.0}), 1.0), 1.0);
}

TEST_P(StatisticsInWarps, SumAnyNumberOfPartials) {
  for (const std::uint32_t n : {0U, 1U, 31U, 255U, 256U, 257U, 5000U}) {
    std::vector<Statistics> partials(n);
    Statistics expected;
    for (std::uint32_t i = 0; i < n; ++i) {
      partials[i] = {.sum_of_squares = i * 0.25, .non_finite = (std::uint64_t{1} << 33) + i};
      expected.sum_of_squares += partials[i].sum_of_squares;
      expected.non_finite += partials[i].non_finite;
    }
    Statistics total{-1.0, 99};
    run_sum_statistics(partials.data(), n, &total);
    EXPECT_EQ(total.sum_of_squares, expected.sum_of_squares) << n;
    EXPECT_EQ(total.non_finite, expected.non_finite) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, StatisticsInWarps, ::testing::Values(32U, 64U));

}  // namespace
}  // namespace tnt::gpu
