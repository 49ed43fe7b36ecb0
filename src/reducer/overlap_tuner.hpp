// Who reduces: a thread while the caller goes on, or the caller once it waits, whichever makes steps shorter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/settings.hpp"

namespace tnt {

// A thread hides what it does behind the rest of backward where a core is free or a network does the work. Where all cores
// compute it hides nothing, and it and the computing threads wait for each other's time slices, as do the ranks: there the
// caller is faster. Neither the cores nor what else they have to do are known beforehand, so steps are timed: both ways in
// turn, soon after the start and now and then later. All ranks try the same way in the same step, and take what is best for
// the slowest of them. Bits do not depend on it.
class OverlapTuner {
 public:
  explicit OverlapTuner(Overlap mode) noexcept : mode_(mode) {}

  // Whether the thread reduces, in the step that is going on.
  [[nodiscard]] bool threaded() const noexcept;

  // True: a trial is over. Then the ranks shall agree on the maxima of seconds() and pass them to agreed().
  [[nodiscard]] bool step_ended(std::int64_t now_ns);
  using Seconds = std::array<double, 2>;                // the median step by the caller, and with the thread
  [[nodiscard]] Seconds seconds() const;                // infinite where the user wants the other way
  void set_agreed(const Seconds& of_slowest) noexcept;  // the same on all ranks

  static constexpr std::size_t steps_between_trials = 1024;
  static constexpr std::size_t trial_begins = 2;  // the first steps have other things to do
  static constexpr std::size_t trial_ends = trial_begins + 32;

 private:
  Overlap mode_;
  bool threaded_ = true;
  std::size_t step_ = 0;  // since the last trial began to be due
  std::int64_t last_ns_ = 0;
  std::array<std::vector<std::int64_t>, 2> times_ns_;
};

}  // namespace tnt
