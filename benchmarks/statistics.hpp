// Statistics of a series of times: order statistics, and the confidence of the median.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tnt::bench {

// values: ascending, at least one.
[[nodiscard]] double median(std::span<const double> sorted);
[[nodiscard]] double percentile(std::span<const double> sorted, double percent);  // nearest rank: always one of the values

// Two indices into n ascending values between which the true median lies with 95 % confidence for any distribution, because the
// number of values below it is binomial. Fewer than 6 values are not enough.
struct IndexInterval {
  std::size_t low = 0;
  std::size_t high = 0;
};
[[nodiscard]] std::optional<IndexInterval> median_interval_indices(std::size_t n);

struct Interval {
  double low = 0;
  double high = 0;
};
[[nodiscard]] std::optional<Interval> median_interval(std::span<const double> values);  // in any order

// Whether half the width of the interval is at most target times the median. values: in any order; cost: O(n).
[[nodiscard]] bool confident(std::span<const double> values, double target);

}  // namespace tnt::bench
