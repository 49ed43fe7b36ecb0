#include "base/trace.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file_descriptor.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

using nlohmann::json;

constexpr const char* tail = "\n]}\n";

// Names come from users; invalid UTF-8 must not destroy the timeline.
std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

class LockedFile {
 public:
  explicit LockedFile(const std::string& name) : name_(name), file_(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (!file_) fail_errno(fmt::format("cannot open the timeline {}", name_));
    if (flock(file_.get(), LOCK_EX) != 0) fail_errno(fmt::format("cannot lock the timeline {}", name_));
  }

  [[nodiscard]] bool begins_with(const std::string& text) const {
    std::string head(text.size(), '\0');
    return pread(file_.get(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()) && head == text;
  }
  [[nodiscard]] off_t size() const { return lseek(file_.get(), 0, SEEK_END); }
  void clear() const {
    if (ftruncate(file_.get(), 0) != 0) fail_errno(fmt::format("cannot truncate the timeline {}", name_));
  }
  void write_at(off_t offset, const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = pwrite(file_.get(), text.data() + done, text.size() - done, offset + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_errno(fmt::format("cannot write the timeline {}", name_));
      done += static_cast<std::size_t>(n);
    }
  }

 private:
  std::string name_;
  FileDescriptor file_;
};

}  // namespace

void Trace::check_file(const std::string& file, const char* reason) {
  if (file.empty()) return;
  const std::string folder = std::filesystem::absolute(file).parent_path();
  if (FileDescriptor(open(file.c_str(), O_RDWR | O_CLOEXEC))) return;
  if (errno == ENOENT && access(folder.c_str(), W_OK | X_OK) == 0) return;
  fail_errno(fmt::format("{}: cannot open {}", reason, file));
}

void Trace::start(const std::string& file) {
  if (file.empty()) return;
  const std::scoped_lock lock(mutex_);
  if (enabled()) fail(TNT_INVALID_ARGUMENT, "a timeline is being recorded already, for {}: stop that one first", file_);
  file_ = std::filesystem::absolute(file);  // wherever the process is when it ends
  enabled_ = true;
}

void Trace::add(TraceEvent event) {
  const std::scoped_lock lock(mutex_);
  if (enabled()) events_.push_back(std::move(event));
}

std::vector<std::string> Trace::lines(const std::vector<TraceEvent>& events, int rank) {
  std::vector<std::string> result;
  std::map<std::string, int> tracks;
  result.push_back(
      text_of({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}}));
  for (const TraceEvent& event : events) {
    const auto [track, added] = tracks.try_emplace(event.track, static_cast<int>(tracks.size()));
    if (added) {
      result.push_back(text_of(
          {{"ph", "M"}, {"name", "thread_name"}, {"pid", rank}, {"tid", track->second}, {"args", {{"name", event.track}}}}));
    }
    json line{{"name", event.name}, {"pid", rank}, {"tid", track->second}, {"ts", static_cast<double>(event.begin_ns) / 1e3}};
    if (event.end_ns == event.begin_ns) {
      line["ph"] = "i";
      line["s"] = "t";
    } else {
      line["ph"] = "X";
      line["dur"] = static_cast<double>(event.end_ns - event.begin_ns) / 1e3;
    }
    if (event.bucket >= 0) line["args"] = {{"bucket", event.bucket}};
    if (event.bytes >= 0) line["args"]["bytes"] = event.bytes;
    result.push_back(text_of(line));
  }
  return result;
}

void Trace::stop() {
  std::vector<TraceEvent> events;
  std::string name;
  {
    const std::scoped_lock lock(mutex_);
    if (!enabled()) return;
    enabled_ = false;
    events.swap(events_);
    name.swap(file_);
  }
  const std::string head = fmt::format("{{\"job\":{},\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", text_of(json(job_)));
  std::string body;
  for (const std::string& line : lines(events, rank_)) body += (body.empty() ? "" : ",\n") + line;

  const LockedFile file(name);
  const auto tail_size = static_cast<off_t>(std::char_traits<char>::length(tail));
  if (file.begins_with(head)) {
    file.write_at(file.size() - tail_size, ",\n" + body + tail);
  } else {
    file.clear();
    file.write_at(0, head + body + tail);
  }
}

}  // namespace tnt
