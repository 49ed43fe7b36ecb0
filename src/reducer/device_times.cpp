#include "reducer/device_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/clock.hpp"

namespace tnt {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

DeviceTimes::Times::Times(Device& device)
    : ready(device, Timed::yes),
      moments{Event(device, Timed::yes), Event(device, Timed::yes), Event(device, Timed::yes), Event(device, Timed::yes),
              Event(device, Timed::yes)} {}

DeviceTimes::DeviceTimes(Device& device, std::size_t n_buckets, std::size_t period, Trace* trace, std::string track,
                         StreamHandle stream)
    : device_(device),
      trace_(trace),
      track_(std::move(track)),
      clock_(device, Timed::yes),
      pending_(n_buckets),
      untimed_(n_buckets),
      period_(period) {
  clock_.record(stream);
  device_.synchronize(stream);
  clock_ns_ = now_ns();
}

void DeviceTimes::begin_step(ReducerStats& stats) {
  collect(stats);
  timed_ = step_ < period_ || step_ % period_ == 0;
  ++step_;
}

void DeviceTimes::last_gradient(StreamHandle stream) {
  if (!timed_) return;
  if (!ready_) ready_.emplace(device_, Timed::yes);
  ready_->record(stream);
}

void DeviceTimes::begin(std::size_t bucket, StreamHandle stream) {
  if (!timed_) {
    ++untimed_[bucket].steps;
    return;
  }
  std::deque<Times>& pending = pending_[bucket];
  if (unused_.empty()) {
    pending.emplace_back(device_);
  } else {
    pending.push_back(std::move(unused_.back()));
    unused_.pop_back();
  }
  Times& times = pending.back();
  times.has_ended = false;
  times.is_last = bucket + 1 == pending_.size() && ready_.has_value();
  if (times.is_last) std::swap(times.ready, *ready_);
  times.at(Moment::begin).record(stream);
}

void DeviceTimes::record(std::size_t bucket, Moment moment, StreamHandle stream) {
  if (!timed_) return;
  Times& times = pending_[bucket].back();
  times.at(moment).record(stream);
  times.has_ended = times.has_ended || moment == Moment::done;
}

void DeviceTimes::collect(ReducerStats& stats) {
  // a later moment of the same bucket completes later, and so does the next step's
  for (std::size_t bucket = 0; bucket < pending_.size(); ++bucket) {
    std::deque<Times>& pending = pending_[bucket];
    while (!pending.empty() && pending.front().has_ended && pending.front().at(Moment::done).completed()) {
      Untimed& untimed = untimed_[bucket];
      untimed.like = read(pending.front());
      untimed.like->add_to(stats, 1);
      if (trace_ != nullptr) add_to_timeline(pending.front(), bucket);
      unused_.push_back(std::move(pending.front()));
      pending.pop_front();
    }
    if (Untimed& untimed = untimed_[bucket]; untimed.like) untimed.like->add_to(stats, std::exchange(untimed.steps, 0));
  }
}

void DeviceTimes::Seconds::add_to(ReducerStats& stats, std::int64_t times) const {
  for (std::size_t i = 0; i < phase_ns.size(); ++i) {
    stats.phase_ns[i] += times * phase_ns[i];
    stats.busy_ns += times * phase_ns[i];
  }
  stats.exposed_ns += times * exposed_ns;
}

DeviceTimes::Seconds DeviceTimes::read(Times& times) {
  const auto between = [&](Moment from, Moment to) { return to_ns(times.at(from).seconds_until(times.at(to))); };
  Seconds seconds{.phase_ns = {between(Moment::begin, Moment::packed), between(Moment::packed, Moment::started),
                               between(Moment::started, Moment::reduced), between(Moment::reduced, Moment::done)}};
  if (times.is_last) seconds.exposed_ns = std::max<std::int64_t>(0, to_ns(times.ready.seconds_until(times.at(Moment::done))));
  return seconds;
}

// Times are differences to the last event of the bucket before: a difference is a float of milliseconds, exact while short.
void DeviceTimes::add_to_timeline(Times& times, std::size_t bucket) {
  const auto at = [&](Moment moment) { return clock_ns_ + to_ns(clock_.seconds_until(times.at(moment))); };
  const std::array moments{at(Moment::begin), at(Moment::packed), at(Moment::started), at(Moment::reduced), at(Moment::done)};
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    trace_->add({.track = track_,
                 .name = fmt::format("{} {}", phase_names[i], bucket),
                 .begin_ns = moments[i],
                 .end_ns = moments[i + 1],
                 .bucket = static_cast<std::int64_t>(bucket)});
  }
  std::swap(clock_, times.at(Moment::done));
  clock_ns_ = moments.back();
}

}  // namespace tnt
