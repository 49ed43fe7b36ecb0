// The timeline (TNT_TIMELINE, tnt_timeline_start): spans of this process in a Chrome trace that all ranks of a job share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tnt {

struct TraceEvent {
  std::string track;  // row of the timeline: "step", "gradients", ...
  std::string name;   // label: "pack 3"
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;  // equal to begin_ns for an instant event
  std::int64_t bucket = -1;
  std::int64_t bytes = -1;  // of the bucket as it travels
};

// Collects events in memory and appends them to the file in stop(). Recording an event is a push under a lock. The file is
// valid JSON after each rank's stop(), in any order of the ranks, also if some ranks never stop.
class Trace {
 public:
  // job: identifies the job, equal on all of its ranks. A file of another job is replaced.
  Trace(std::string job, int rank) : job_(std::move(job)), rank_(rank) {}

  // Throws TNT_SYSTEM that names the file if it cannot be written. Makes no file. reason: what asks for it.
  static void check_file(const std::string& file, const char* reason);

  // Events are recorded from now on, if the file is not "". Throws TNT_INVALID_ARGUMENT if they are already.
  void start(const std::string& file);
  // Writes the events and records no more, if it was started. Throws TNT_SYSTEM that names the file.
  void stop();

  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }
  void add(TraceEvent event);  // does nothing unless enabled

 private:
  [[nodiscard]] static std::vector<std::string> lines(const std::vector<TraceEvent>& events, int rank);

  const std::string job_;
  const int rank_;
  std::atomic<bool> enabled_{false};
  std::mutex mutex_;
  std::string file_;
  std::vector<TraceEvent> events_;
};

}  // namespace tnt
