// The library's clock, CLOCK_MONOTONIC in nanoseconds (equal for all processes of a node), and deadlines on it.
//
// src/base has what every other folder of src may use: settings, the log, the clock, the timeline, descriptors and threads. It
// knows no ranks, and it includes no other folder but src/common.
#pragma once

#include <cstdint>
#include <ctime>

namespace tnt {

[[nodiscard]] inline std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Deadline {
 public:
  explicit Deadline(double seconds) noexcept
      : seconds_(seconds), begin_(now_ns()), end_(begin_ + static_cast<std::int64_t>(seconds * 1e9)) {}
  [[nodiscard]] bool passed() const noexcept { return now_ns() >= end_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] std::int64_t begin_ns() const noexcept { return begin_; }
  [[nodiscard]] std::int64_t end_ns() const noexcept { return end_; }

 private:
  double seconds_;
  std::int64_t begin_;
  std::int64_t end_;
};

}  // namespace tnt
