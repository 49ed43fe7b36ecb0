#include "support/simulated_streams.hpp"

#include <algorithm>
#include <atomic>

#include "base/clock.hpp"
#include "common/error.hpp"
#include "support/simulated_streams_inner.hpp"

namespace tnt::testing {
namespace {

// Not addresses, so that nobody reads what they point to, and never reused.
void* new_handle() {
  static std::atomic<std::uintptr_t> last{0x5000};
  return reinterpret_cast<void*>(last += 16);  // NOLINT(performance-no-int-to-ptr)
}

struct Owners {
  std::mutex mutex;
  std::map<StreamHandle, SimulatedStreams*> by_stream;
};
Owners& owners() {
  static auto* all = new Owners;  // devices may live as long as the process
  return *all;
}

}  // namespace

SimulatedStreams::SimulatedStreams(const void* owner, const SimulationOptions& options)
    : owner_(owner), options_(options), random_(options.seed), progress_ns_(now_ns()) {
  if (options.progress == Progress::thread) worker_ = std::thread([this] { work(); });
}

SimulatedStreams::~SimulatedStreams() {
  run_all();
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  const std::scoped_lock lock(owners().mutex);
  std::erase_if(owners().by_stream, [this](const auto& entry) { return entry.second == this; });
}

SimulatedStreams* SimulatedStreams::of(StreamHandle stream) {
  const std::scoped_lock lock(owners().mutex);
  const auto found = owners().by_stream.find(stream);
  return found == owners().by_stream.end() ? nullptr : found->second;
}

std::shared_ptr<SimulatedStreams::Stream> SimulatedStreams::new_stream(const std::string& name) {
  auto stream = std::make_shared<Stream>();
  stream->name = name;
  stream->component = components_++;
  streams_.push_back(stream);
  return stream;
}

std::shared_ptr<SimulatedStreams::Stream> SimulatedStreams::find(StreamHandle stream) {
  if (is_default_stream(stream)) return default_stream(stream);
  const auto found = by_handle_.find(stream);
  if (found != by_handle_.end()) return found->second;
  const std::string message = fmt::format("{} is no stream of this device, or was destroyed", stream);
  add_report(message);
  throw Error(TNT_SYSTEM, message);
}

std::shared_ptr<SimulatedStreams::Stream> SimulatedStreams::default_stream(StreamHandle stream) {
  const bool of_thread = is_per_thread_stream(stream);
  std::shared_ptr<Stream>& found = default_streams_[of_thread ? std::this_thread::get_id() : std::thread::id()];
  if (found == nullptr) found = new_stream(of_thread ? "a thread's default stream" : "the default stream");
  return found;
}

StreamHandle SimulatedStreams::make_stream(Priority priority) {
  const StreamHandle handle = new_handle();
  {
    const std::scoped_lock lock(owners().mutex);
    owners().by_stream[handle] = this;
  }
  const std::scoped_lock lock(mutex_);
  by_handle_[handle] = new_stream(fmt::format("stream {}", by_handle_.size() + 1));
  by_handle_[handle]->priority = priority;
  return handle;
}

void SimulatedStreams::destroy_stream(StreamHandle handle) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = by_handle_.find(handle);
    if (found == by_handle_.end()) return add_report("a stream was destroyed twice");
    if (found->second->capture != nullptr) add_report(found->second->name + " was destroyed while it was captured");
    by_handle_.erase(found);
  }
  const std::scoped_lock lock(owners().mutex);
  owners().by_stream.erase(handle);
}

void SimulatedStreams::enqueue(StreamHandle handle, Work work) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  stream->history.push_back(work.what);
  put(stream, {std::move(work)});
}

void SimulatedStreams::put(const std::shared_ptr<Stream>& stream, Step step) {
  if (stream->capture == nullptr) return put_now(*stream, std::move(step));
  Capture& capture = *stream->capture;
  Capture::Part& part = capture.part_of(stream);
  part.clock.set(stream->component, ++part.tick);
  if (step.awaits != nullptr) part.clock.join(step.awaits->clock);
  if (step.reaches != nullptr) step.reaches->clock = part.clock;
  capture.calls.push_back({stream, std::move(step)});
}

void SimulatedStreams::put_now(Stream& stream, Step step) {
  stream.clock.join(host_clock_);
  stream.clock.set(stream.component, ++stream.tick);
  if (step.awaits != nullptr) stream.clock.join(step.awaits->clock);
  if (step.reaches != nullptr) step.reaches->clock = stream.clock;
  auto item = std::make_shared<Item>();
  if (step.work.run) {
    const std::string what = fmt::format("{} (work {} on {})", step.work.what, ++works_, stream.name);
    item->actor = std::make_shared<const Actor>(Actor{stream.component, stream.tick, what});
  }
  item->step = std::move(step);
  item->clock = stream.clock;
  stream.queue.push_back(std::move(item));
  changed_.notify_all();
}

bool SimulatedStreams::idle(StreamHandle handle) {
  Lock lock(mutex_);
  const auto stream = find(handle);
  refuse_captured(*stream, "asked whether it is idle");
  poll(lock);
  if (!stream->queue.empty()) return false;
  host_clock_.join(stream->clock);
  return true;
}

void SimulatedStreams::synchronize(StreamHandle handle) {
  Lock lock(mutex_);
  const auto stream = find(handle);
  refuse_captured(*stream, "synchronized");
  wait_until(
      lock, [&] { return stream->queue.empty(); }, stream->name);
  host_clock_.join(stream->clock);
}

Priority SimulatedStreams::priority_of(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  return find(stream)->priority;
}

std::vector<std::string> SimulatedStreams::enqueued_on(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  return find(stream)->history;
}

void SimulatedStreams::name(StreamHandle stream, const std::string& name) {
  const std::scoped_lock lock(mutex_);
  find(stream)->name = name;
}

EventHandle SimulatedStreams::make_event() {
  const EventHandle handle = new_handle();
  const std::scoped_lock lock(mutex_);
  events_[handle] = nullptr;
  return handle;
}

void SimulatedStreams::destroy_event(EventHandle event) {
  const std::scoped_lock lock(mutex_);
  if (events_.erase(event) == 0) add_report("an event was destroyed twice");
}

std::shared_ptr<SimulatedStreams::Moment>& SimulatedStreams::moment_of(EventHandle event) {
  const auto found = events_.find(event);
  if (found != events_.end()) return found->second;
  const std::string message = fmt::format("{} is no event of this device, or was destroyed", event);
  add_report(message);
  throw Error(TNT_SYSTEM, message);
}

void SimulatedStreams::record(EventHandle event, StreamHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  auto moment = std::make_shared<Moment>();
  moment->capture = stream->capture;
  moment->captured = stream->capture != nullptr;
  moment_of(event) = moment;
  stream->history.emplace_back("record");
  put(stream, {.work = {}, .reaches = moment});
}

void SimulatedStreams::wait(StreamHandle handle, EventHandle event) {
  const std::scoped_lock lock(mutex_);
  const auto stream = find(handle);
  const auto moment = moment_of(event);
  stream->history.emplace_back("wait");
  if (moment == nullptr) return;  // never recorded: CUDA waits for nothing
  const auto refused = [&](const char* why) {
    add_report(stream->name + why);
    throw Error(TNT_SYSTEM, stream->name + why);
  };
  const auto capture = moment->capture.lock();
  if (stream->capture != nullptr && capture != stream->capture) {
    refused(" is captured and waits for an event that was recorded outside of the capture (cudaErrorStreamCaptureIsolation)");
  }
  if (moment->captured && (capture == nullptr || capture->ended)) {
    refused(" waits for an event that was recorded in a capture that has ended (cudaErrorCapturedEvent)");
  }
  stream->capture = capture;  // the stream joins the capture
  put(stream, {.work = {}, .awaits = moment});
}

bool SimulatedStreams::completed(EventHandle event) {
  Lock lock(mutex_);
  if (const auto& moment = moment_of(event); moment != nullptr && moment->captured) {
    constexpr const char* message = "an event that was recorded in a capture was polled (cudaErrorCapturedEvent)";
    add_report(message);
    throw Error(TNT_SYSTEM, message);
  }
  poll(lock);
  const auto moment = moment_of(event);
  if (moment == nullptr) return true;
  if (moment->completed) host_clock_.join(moment->clock);
  return moment->completed;
}

void SimulatedStreams::report_leaks() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [handle, stream] : by_handle_) add_report(stream->name + " was never destroyed");
  if (!events_.empty()) add_report(fmt::format("{} events were never destroyed", events_.size()));
}

}  // namespace tnt::testing
