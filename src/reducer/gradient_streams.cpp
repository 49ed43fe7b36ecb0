#include "reducer/gradient_streams.hpp"

#include <algorithm>
#include <utility>

namespace tnt {

void GradientStreams::add(Device& device, StreamHandle stream) {
  if (is_per_thread_stream(stream)) return add_of_thread(device, stream);
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
}

// A thread's own entry, else one that is free.
void GradientStreams::add_of_thread(Device& device, StreamHandle stream) {
  const std::thread::id self = std::this_thread::get_id();
  const auto find = [&](const auto& fits) { return std::find_if(thread_streams_.begin(), thread_streams_.end(), fits); };
  auto entry = find([&](const ThreadStream& each) { return each.thread == self; });
  if (entry == thread_streams_.end()) entry = find([](const ThreadStream& each) { return !each.used; });
  if (entry == thread_streams_.end()) {
    thread_streams_.push_back({.thread = self, .event = Event(device)});
    entry = thread_streams_.end() - 1;
  }
  entry->thread = self;
  entry->event.record(stream);
  entry->used = true;
}

void GradientStreams::join(Device& device, StreamHandle stream, std::vector<StreamHandle>& joined) {
  while (events_.size() < streams_.size()) events_.emplace_back(device);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (std::find(joined.begin(), joined.end(), streams_[i]) != joined.end()) continue;
    joined.push_back(streams_[i]);
    events_[i].record(streams_[i]);
    events_[i].wait_on(stream);
  }
  streams_.clear();
  for (ThreadStream& each : thread_streams_) {
    if (std::exchange(each.used, false)) each.event.wait_on(stream);
  }
}

}  // namespace tnt
