// The timeline (TNT_TIMELINE): spans of this process, written as a Chrome trace that all ranks of a job share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tnt {

struct TraceEvent {
  std::string track;  // the row: "step", "gradients", ...
  std::string name;   // what is shown: "pack 3"
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;  // equal to begin_ns for an instant
  std::int64_t bucket = -1;
};

// Collects events in memory and appends them to the file when it is written: recording is a push under a lock and changes
// nothing in what is recorded. The file is complete JSON after each rank's write, whichever rank comes first or never.
class Trace {
 public:
  // job: the same text on all ranks of a job and on no other job; a file of another job is replaced.
  Trace(std::string file, std::string job, int rank) : file_(std::move(file)), job_(std::move(job)), rank_(rank) {}

  [[nodiscard]] bool enabled() const noexcept { return !file_.empty(); }
  void add(TraceEvent event);
  void write();  // throws TNT_SYSTEM naming the file

 private:
  [[nodiscard]] std::vector<std::string> lines();

  const std::string file_;
  const std::string job_;
  const int rank_;
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

}  // namespace tnt
