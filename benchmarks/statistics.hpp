// What a series of times says: order statistics, and how well the median is known.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tnt::bench {

// Of ascending values, at least one.
[[nodiscard]] double median(std::span<const double> sorted);
[[nodiscard]] double percentile(std::span<const double> sorted, double percent);  // nearest rank: always one of the values

// Two places in n ascending values, from 0, between which the true median lies with 95 % confidence whatever the
// distribution is: the number of values below it is binomial. Fewer than 6 values say too little.
struct Places {
  std::size_t low = 0;
  std::size_t high = 0;
};
[[nodiscard]] std::optional<Places> median_places(std::size_t n);

struct Interval {
  double low = 0;
  double high = 0;
};
[[nodiscard]] std::optional<Interval> median_interval(std::span<const double> values);  // in any order

// Half the width of the interval is at most target times the median. values in any order; cost: O(n).
[[nodiscard]] bool confident(std::span<const double> values, double target);

}  // namespace tnt::bench
