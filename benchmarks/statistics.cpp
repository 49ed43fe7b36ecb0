#include "benchmarks/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tnt::bench {
namespace {

constexpr std::size_t exact_up_to = 30;  // above, the normal approximation is good enough

// The number of values that may be cut off at each end: the largest k with P(fewer than k values are below the median) <= 2.5
// %.
std::size_t cut_exactly(std::size_t n) {
  double probability = std::ldexp(1.0, -static_cast<int>(n));  // that exactly k are below
  double below = probability;
  std::size_t k = 0;
  while (below <= 0.025) {
    ++k;
    probability *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    below += probability;
  }
  return k;
}

std::size_t cut_nearly(std::size_t n) {
  const auto count = static_cast<double>(n);
  return static_cast<std::size_t>(std::floor(count / 2 - 1.96 * std::sqrt(count) / 2));
}

double select(std::vector<double>& values, std::size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

double median(std::span<const double> sorted) {
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double percentile(std::span<const double> sorted, double percent) {
  const auto n = static_cast<double>(sorted.size());
  const double rank = std::clamp(std::ceil(percent / 100 * n), 1.0, n);
  return sorted[static_cast<std::size_t>(rank) - 1];
}

std::optional<IndexInterval> median_interval_indices(std::size_t n) {
  const std::size_t cut = n <= exact_up_to ? cut_exactly(n) : cut_nearly(n);
  if (cut == 0) return std::nullopt;
  return IndexInterval{.low = cut - 1, .high = n - cut};
}

std::optional<Interval> median_interval(std::span<const double> values) {
  const std::optional<IndexInterval> indices = median_interval_indices(values.size());
  if (!indices) return std::nullopt;
  std::vector<double> copy(values.begin(), values.end());
  return Interval{.low = select(copy, indices->low), .high = select(copy, indices->high)};
}

bool confident(std::span<const double> values, double target) {
  const std::optional<Interval> interval = median_interval(values);
  if (!interval) return false;
  std::vector<double> copy(values.begin(), values.end());
  const double middle = select(copy, copy.size() / 2);
  return (interval->high - interval->low) / 2 <= target * middle;
}

}  // namespace tnt::bench
