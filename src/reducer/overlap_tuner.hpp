// Chooses which thread reduces: a background thread while the caller goes on, or the caller when it waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/settings.hpp"

namespace tnt {

// A background thread hides communication behind backward if a core is free or a network does the work. If all cores compute,
// it hides nothing and competes with the computing threads and with other ranks; then it is faster to reduce in the caller.
// Neither the free cores nor their load are known in advance, so the tuner times steps in both modes, soon after the start and
// again from time to time. All ranks try the same mode in the same step and take the mode that is best for the slowest rank.
// The mode does not change the bits of results.
class OverlapTuner {
 public:
  explicit OverlapTuner(Overlap mode) noexcept : mode_(mode) {}

  // Whether the background thread reduces in the current step.
  [[nodiscard]] bool threaded() const noexcept;

  // True at the end of a trial. The ranks then agree on the maxima of seconds() and pass them to set_agreed().
  [[nodiscard]] bool step_ended(std::int64_t now_ns);
  using Seconds = std::array<double, 2>;             // median step in the caller's mode, and in the thread's mode
  [[nodiscard]] Seconds seconds() const;             // infinite for a mode that the user has excluded
  void set_agreed(const Seconds& slowest) noexcept;  // the same on all ranks

  static constexpr std::size_t steps_between_trials = 1024;
  static constexpr std::size_t trial_begins = 2;  // the first steps include initialisation
  static constexpr std::size_t trial_ends = trial_begins + 32;

 private:
  Overlap mode_;
  bool threaded_ = true;
  std::size_t step_ = 0;  // within the period between trials
  std::int64_t last_ns_ = 0;
  std::array<std::vector<std::int64_t>, 2> times_ns_;
};

}  // namespace tnt
