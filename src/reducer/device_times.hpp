// When the buckets of a device reducer were packed, reduced and unpacked, by events with times. The host looks at the times of
// an earlier step when it enqueues a later one, and never waits. Events cost the host time, so most steps may go without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "device/handles.hpp"
#include "reducer/gradient_reducer.hpp"

namespace tnt {

class DeviceTimes {
 public:
  // The moments of a bucket, in their order: on the pack stream twice, on the communicator's stream, on the unpack stream
  // twice.
  enum class Moment { begin, packed, started, reduced, done, last = done };

  // The first n = `period` steps and every n-th one are timed. The others count as the last one whose times are known. trace:
  // nullptr without a timeline. stream: one of the device's. Waits for it once, to relate the two clocks.
  DeviceTimes(Device& device, std::size_t n_buckets, std::size_t period, Trace* trace, std::string track, StreamHandle stream);

  // Before the first bucket of a step. Adds the times of earlier steps, as collect().
  void begin_step(ReducerStats& stats);
  // These do nothing in a step that is not timed. begin: begins the times of a bucket's next step.
  void begin(std::size_t bucket, StreamHandle stream);
  void record(std::size_t bucket, Moment moment, StreamHandle stream);
  // The stream has computed the last gradient of the step. Called before begin() of its last bucket.
  void last_gradient(StreamHandle stream);

  // Adds the times of all steps that have completed since the last call, and of those that are not timed.
  void collect(ReducerStats& stats);

 private:
  struct Times {
    explicit Times(Device& device);
    [[nodiscard]] Event& at(Moment moment) { return moments[static_cast<std::size_t>(moment)]; }

    Event ready;  // last_gradient(), of the last bucket of a step
    bool is_last = false;
    bool has_ended = false;  // done is recorded for this step, and not only for an earlier one
    std::array<Event, static_cast<std::size_t>(Moment::last) + 1> moments;
  };
  struct Seconds {  // of a bucket in one step
    decltype(ReducerStats::phase_ns) phase_ns{};
    std::int64_t exposed_ns = 0;
    void add_to(ReducerStats& stats, std::int64_t times) const;
  };
  struct Untimed {  // steps of a bucket that are not added yet
    std::optional<Seconds> like;
    std::int64_t steps = 0;
  };
  [[nodiscard]] Seconds read(Times& times);
  void add_to_timeline(Times& times, std::size_t bucket);

  Device& device_;
  Trace* trace_;
  std::string track_;
  Event clock_;                             // a completed event ...
  std::int64_t clock_ns_ = 0;               // ... and its time on the host's clock
  std::optional<Event> ready_;              // of the step that is being enqueued
  std::vector<std::deque<Times>> pending_;  // of each bucket, the oldest step first
  std::vector<Untimed> untimed_;            // of each bucket
  std::size_t period_;
  std::size_t step_ = 0;
  bool timed_ = true;  // the step that is being enqueued
  std::vector<Times> unused_;
};

}  // namespace tnt
