#include "comm/shm/path_tuner.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace tnt {
namespace {

constexpr std::uint64_t path_trials = 4;  // calls by each path; the first finds the cache contents that the other path has left
constexpr std::uint64_t path_period = 512;  // calls in which both paths are tried once

}  // namespace

// Up to 32 KiB, 64 KiB, ... 128 MiB, larger.
std::size_t PathTuner::class_of(std::size_t bytes) noexcept {
  const auto width = static_cast<std::size_t>(std::bit_width(bytes > 0 ? bytes - 1 : 0));
  return std::clamp<std::size_t>(width, 15, 14 + n_classes) - 15;
}

PathTuner::Next PathTuner::next(std::size_t bytes) noexcept {
  Class& size = classes_[class_of(bytes)];
  const std::uint64_t call = size.calls++ % path_period;
  if (call == 0) size.shortest.fill(std::numeric_limits<std::int32_t>::max());
  if (call < 2 * path_trials) return {call < path_trials ? Path::direct : Path::slots, call % path_trials > 0, false};
  return {size.best, false, call == 2 * path_trials};
}

void PathTuner::record(std::size_t bytes, Path path, std::int64_t ns) noexcept {
  std::int64_t& shortest = classes_[class_of(bytes)].shortest.at(static_cast<std::size_t>(path));
  shortest = std::min(shortest, ns);
}

void PathTuner::decide(std::size_t bytes, const Times& of_all) noexcept {
  classes_[class_of(bytes)].best = of_all[0] <= of_all[1] ? Path::direct : Path::slots;
}

}  // namespace tnt
