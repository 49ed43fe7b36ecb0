#include "comm/shm/store_tuner.hpp"

#include <algorithm>

namespace tnt {
namespace {

constexpr std::uint64_t first_trials = 4;  // calls of each kind, at the beginning
constexpr std::uint64_t trials = 2;        // calls of each kind, later
constexpr std::uint64_t period = 64;       // calls in which both kinds are tried once
constexpr double weight_slower = 0.25;     // of a time above the mean: a disturbance may be the reason
constexpr double weight_faster = 0.8;      // of a time below the mean: a disturbance never makes a call faster
constexpr double outlier = 3;              // a multiple of the mean that only a disturbance explains

std::size_t index(Store store) noexcept { return static_cast<std::size_t>(store); }

}  // namespace

// Up to 2 KiB, 16 KiB, 128 KiB, 1 MiB, larger.
std::size_t StoreTuner::class_of(std::size_t bytes) noexcept {
  std::size_t result = 0;
  for (std::size_t border = std::size_t{2} << 10; bytes > border && result + 1 < n_classes; border *= 8) ++result;
  return result;
}

// The first call after a switch is not timed: it still finds the cache contents that the other kind of store has left.
StoreTuner::Next StoreTuner::next(std::size_t bytes) noexcept {
  if (bytes == 0) return {Store::cached, false};
  Class& size = classes_[class_of(bytes)];
  const std::uint64_t call = size.calls++;
  if (call < 2 * first_trials) {
    size.tried = call < first_trials ? Store::streaming : Store::cached;
    return {size.tried, call % first_trials > 0};
  }
  const std::uint64_t turn = call % (period / 2);
  if (turn < trials) {
    size.tried = call % period < trials ? Store::streaming : Store::cached;
    return {size.tried, turn > 0};
  }
  return {size.ns_per_byte[0] <= size.ns_per_byte[1] ? Store::cached : Store::streaming, false};
}

void StoreTuner::record(std::size_t bytes, std::int64_t ns) noexcept {
  Class& size = classes_[class_of(bytes)];
  double& mean = size.ns_per_byte[index(size.tried)];
  const double now = static_cast<double>(ns) / static_cast<double>(bytes);
  if (mean == 0) {
    mean = now;
  } else if (now < mean) {
    mean += weight_faster * (now - mean);
  } else {
    mean += weight_slower * (std::min(now, outlier * mean) - mean);
  }
}

}  // namespace tnt
