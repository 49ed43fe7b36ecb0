#include "reducer/overlap_tuner.hpp"

#include <limits>

#include "base/median.hpp"

namespace tnt {
namespace {

constexpr std::size_t steps_in_turn = 4;  // the first of them is not timed, because the previous mode overlaps it
constexpr double min_gain = 0.97;         // a smaller difference is noise

bool in_trial(std::size_t step) { return step >= OverlapTuner::trial_begins && step < OverlapTuner::trial_ends; }
bool is_threaded_turn(std::size_t step) { return (step - OverlapTuner::trial_begins) / steps_in_turn % 2 == 0; }
bool is_timed(std::size_t step) { return in_trial(step) && (step - OverlapTuner::trial_begins) % steps_in_turn != 0; }

double median_seconds(const std::vector<std::int64_t>& ns) { return static_cast<double>(median(ns)) * 1e-9; }

}  // namespace

bool OverlapTuner::threaded() const noexcept {
  if (mode_ != Overlap::automatic) return mode_ == Overlap::on;
  return in_trial(step_) ? is_threaded_turn(step_) : threaded_;
}

bool OverlapTuner::step_ended(std::int64_t now_ns) {
  if (is_timed(step_)) times_ns_[is_threaded_turn(step_) ? 1 : 0].push_back(now_ns - last_ns_);
  last_ns_ = now_ns;
  if (++step_ == steps_between_trials) step_ = 0;
  return step_ == trial_ends;
}

OverlapTuner::Seconds OverlapTuner::seconds() const {
  constexpr double never = std::numeric_limits<double>::infinity();
  return {mode_ == Overlap::on ? never : median_seconds(times_ns_[0]),
          mode_ == Overlap::off ? never : median_seconds(times_ns_[1])};
}

void OverlapTuner::set_agreed(const Seconds& slowest) noexcept {
  const auto& [by_caller, with_thread] = slowest;
  threaded_ = by_caller >= min_gain * with_thread;
  for (auto& times : times_ns_) times.clear();
}

}  // namespace tnt
