// The timeline (TNT_TIMELINE): spans of this process in a Chrome trace that all ranks of a job share.
#pragma once

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

// Collects events in memory and appends them to the file in write(). Recording an event is a push under a lock. The file is
// valid JSON after each rank's write, in any order of the ranks, also if some ranks never write.
class Trace {
 public:
  // job: identifies the job, equal on all of its ranks. A file of another job is replaced.
  Trace(std::string file, std::string job, int rank) : file_(std::move(file)), job_(std::move(job)), rank_(rank) {}

  // Throws as write() will, before there is something to lose. Makes no file.
  static void check_file(const std::string& file);

  [[nodiscard]] bool enabled() const noexcept { return !file_.empty(); }
  void add(TraceEvent event);
  void write();  // throws TNT_SYSTEM that names the file

 private:
  [[nodiscard]] std::vector<std::string> lines();

  const std::string file_;
  const std::string job_;
  const int rank_;
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

}  // namespace tnt
