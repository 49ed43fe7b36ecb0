// Order statistics and the confidence interval of the median, compared with published tables and by simulation.
#include "benchmarks/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tnt::bench {
namespace {

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTwo) {
  EXPECT_DOUBLE_EQ(median(std::vector{7.0}), 7.0);
  EXPECT_DOUBLE_EQ(median(std::vector{1.0, 2.0, 9.0}), 2.0);
  EXPECT_DOUBLE_EQ(median(std::vector{1.0, 2.0, 4.0, 9.0}), 3.0);
}

TEST(Statistics, PercentileIsTheNearestRank) {
  std::vector<double> values(100);
  for (int i = 0; i < 100; ++i) values[static_cast<std::size_t>(i)] = i + 1;
  EXPECT_DOUBLE_EQ(percentile(values, 95), 95);
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 100);
  EXPECT_DOUBLE_EQ(percentile(values, 94.1), 95);
  EXPECT_DOUBLE_EQ(percentile(std::vector{3.0}, 95), 3);
  EXPECT_DOUBLE_EQ(percentile(std::vector{1.0, 2.0}, 50), 1);
}

TEST(Statistics, FewValuesSayTooLittle) {
  for (const std::size_t n : {0U, 1U, 5U}) EXPECT_FALSE(median_interval_indices(n)) << n;
  EXPECT_FALSE(confident(std::vector{1.0, 1.0, 1.0, 1.0, 1.0}, 0.5));
  EXPECT_FALSE(confident(std::vector<double>{}, 0.5));
  EXPECT_TRUE(confident(std::vector{1.0, 1.0, 1.0, 1.0, 1.0, 1.0}, 0.02));
}

// The ranks (from 1) of the 95 % interval in tables of the sign test: n, lower, upper.
TEST(Statistics, PlacesAreThoseOfTheTables) {
  struct Case {
    std::size_t n, low, high;
  };
  for (const Case& c : {Case{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {10, 2, 9}, {15, 4, 12}, {20, 6, 15}, {25, 8, 18}, {30, 10, 21}}) {
    const auto indices = median_interval_indices(c.n);
    ASSERT_TRUE(indices) << c.n;
    EXPECT_EQ(indices->low + 1, c.low) << c.n;
    EXPECT_EQ(indices->high + 1, c.high) << c.n;
  }
  const auto many = median_interval_indices(100);
  ASSERT_TRUE(many);
  EXPECT_EQ(many->low + 1, 40U);
  EXPECT_EQ(many->high + 1, 61U);
}

TEST(Statistics, IntervalCoversTheMedianInNinetyFiveOfAHundredSeries) {
  std::mt19937 random(1);
  std::exponential_distribution<double> times;  // skewed like measured times
  const double truth = std::log(2.0);
  for (const std::size_t n : {10U, 25U, 50U, 200U}) {
    int covered = 0;
    constexpr int series = 2000;
    for (int i = 0; i < series; ++i) {
      std::vector<double> values(n);
      std::generate(values.begin(), values.end(), [&] { return times(random); });
      const auto interval = median_interval(values);
      ASSERT_TRUE(interval);
      covered += interval->low <= truth && truth <= interval->high ? 1 : 0;
    }
    EXPECT_GE(covered, series * 94 / 100) << n;
  }
}

TEST(Statistics, ConfidentWhenTheIntervalIsNarrow) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i % 2 == 0 ? 99.0 : 101.0);
  EXPECT_TRUE(confident(values, 0.02));
  EXPECT_FALSE(confident(values, 0.005));
  values.insert(values.end(), 5, 10'000.0);  // a few interruptions do not matter
  EXPECT_TRUE(confident(values, 0.02));
}

}  // namespace
}  // namespace tnt::bench
