#include "comm/shm/store_choice.hpp"

#include <algorithm>

namespace tnt {
namespace {

constexpr std::uint64_t first_trials = 8;     // calls that try both in turn; the first of them find cold memory
constexpr std::uint64_t between_trials = 64;  // calls, of which one tries the other, and one is timed for comparison
constexpr double weight_slower = 0.25;        // of a measurement above the mean so far: perhaps something else disturbed it
constexpr double weight_faster = 0.75;        // below it: nothing makes a call faster by accident
constexpr double slow = 1.5;                  // times the mean
constexpr int too_many_slow_calls = 2;
constexpr std::size_t always_timed = 2;  // from this class of sizes on the clock costs nothing to speak of
constexpr double outlier = 3;            // times the mean: certainly disturbed

Store other(Store store) noexcept { return store == Store::cached ? Store::streaming : Store::cached; }
std::size_t index(Store store) noexcept { return static_cast<std::size_t>(store); }

}  // namespace

// Up to 2 KiB, 16 KiB, 128 KiB, 1 MiB, more.
std::size_t StoreChoice::class_of(std::size_t bytes) noexcept {
  std::size_t result = 0;
  for (std::size_t border = std::size_t{2} << 10; bytes > border && result + 1 < n_classes; border *= 8) ++result;
  return result;
}

StoreChoice::Next StoreChoice::next(std::size_t bytes) noexcept {
  const std::size_t index_of_class = class_of(bytes);
  Class& size = classes_[index_of_class];
  const std::uint64_t call = size.calls++;
  if (call < first_trials) return {size.tried = other(size.tried), true};
  const Store best = size.ns_per_byte[0] <= size.ns_per_byte[1] ? Store::cached : Store::streaming;
  const bool tries_other = call % between_trials == 0 || size.slow_calls == too_many_slow_calls;
  if (tries_other) size.slow_calls = 0;
  size.tried = tries_other ? other(best) : best;
  return {size.tried, tries_other || index_of_class >= always_timed || call % between_trials == between_trials / 2};
}

void StoreChoice::took(std::size_t bytes, std::int64_t ns) noexcept {
  Class& size = classes_[class_of(bytes)];
  double& mean = size.ns_per_byte[index(size.tried)];
  const double now = static_cast<double>(ns) / static_cast<double>(bytes);
  size.slow_calls = mean > 0 && now > slow * mean ? size.slow_calls + 1 : 0;
  if (mean == 0) {
    mean = now;
  } else if (now < mean) {
    mean += weight_faster * (now - mean);
  } else {
    mean += weight_slower * (std::min(now, outlier * mean) - mean);
  }
}

}  // namespace tnt
