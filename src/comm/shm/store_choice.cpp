#include "comm/shm/store_choice.hpp"

#include <algorithm>

namespace tnt {
namespace {

constexpr std::uint64_t first_trials = 4;      // calls of each, at the beginning
constexpr std::uint64_t trials = 2;            // calls of the other one, later
constexpr std::uint64_t between_trials = 128;  // calls
constexpr double weight_slower = 0.25;         // of a measurement above the mean so far: perhaps something else disturbed it
constexpr double weight_faster = 0.75;         // below it: nothing makes a call faster by accident
constexpr double slow = 1.3;                   // times the mean
constexpr int too_many_slow_calls = 3;
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

// The first call after a change finds in the caches what the last way of writing has left there: it is not timed.
StoreChoice::Next StoreChoice::next(std::size_t bytes) noexcept {
  if (bytes == 0) return {Store::cached, false};
  const std::size_t index_of_class = class_of(bytes);
  Class& size = classes_[index_of_class];
  if (size.slow_calls == too_many_slow_calls) {
    size.slow_calls = 0;
    size.calls = (size.calls / between_trials + 1) * between_trials;  // the other one's turn
  }
  const std::uint64_t call = size.calls++;
  if (call < 2 * first_trials) {
    size.tried = call < first_trials ? Store::streaming : Store::cached;
    return {size.tried, call % first_trials > 0};
  }
  const Store best = size.ns_per_byte[0] <= size.ns_per_byte[1] ? Store::cached : Store::streaming;
  const std::uint64_t turn = call % between_trials;
  size.tried = turn < trials ? other(best) : best;
  const bool after_change = turn == 0 || turn == trials;
  return {size.tried, !after_change && (turn < trials || index_of_class >= always_timed || turn == between_trials / 2)};
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
