// Which work runs next, and the checks before it runs.
#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.hpp"
#include "common/error.hpp"
#include "support/simulated_memory.hpp"
#include "support/simulated_streams_inner.hpp"

namespace tnt::testing {
namespace {

constexpr std::size_t max_reports = 20;

// The host function that this thread is running: its accesses happen when the function's turn came, not later.
thread_local std::shared_ptr<const Actor> current_actor;
thread_local const Clock* current_clock = nullptr;

}  // namespace

// Runs one item of any stream. False if nothing more can be done: all streams wait, or another thread runs work.
bool SimulatedStreams::step(Lock& lock) {
  if (running_) return false;
  std::erase_if(streams_, [](const auto& stream) { return stream.use_count() == 1 && stream->queue.empty(); });
  auto candidates = streams_;
  std::shuffle(candidates.begin(), candidates.end(), random_);
  return std::any_of(candidates.begin(), candidates.end(),
                     [&](const auto& stream) { return !running_ && try_front(lock, *stream); });
}

bool SimulatedStreams::try_front(Lock& lock, Stream& stream) {
  if (stream.queue.empty()) return false;
  const auto item = stream.queue.front();
  if (item->step.awaits != nullptr && !item->step.awaits->completed) return false;
  if (item->step.reaches != nullptr) item->step.reaches->completed = true;
  bool done = true;
  if (item->step.work.run && (item->begun || begin(*item))) {
    running_ = true;
    lock.unlock();
    std::string failure;
    try {
      std::optional<SimulatedMemory::Open> open;
      if (!item->step.work.of_host) open.emplace();
      current_actor = item->actor;
      current_clock = &item->clock;
      done = item->step.work.run();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    current_actor = nullptr;
    current_clock = nullptr;
    lock.lock();
    running_ = false;
    if (!failure.empty()) add_report(fmt::format("{} failed: {}", item->actor->what, failure));
  }
  if (done) {
    if (!stream.queue.empty() && stream.queue.front() == item) stream.queue.pop_front();
    progress_ns_ = now_ns();
  }
  changed_.notify_all();
  return done;
}

// False if the work must not run, because it would access memory that it may not.
bool SimulatedStreams::begin(Item& item) {
  item.begun = true;
  if (item.step.work.of_host) host_clock_.join(item.clock);
  if (!item.step.work.accesses) return true;
  std::vector<Access> accesses;
  {
    const SimulatedMemory::Open open;
    accesses = item.step.work.accesses();
  }
  std::erase_if(accesses, [](const Access& access) { return access.bytes == 0; });
  bool possible = true;
  for (const Access& access : accesses) possible = allowed(access, *item.actor) && possible;
  if (!possible) return false;
  for (const Access& access : accesses) note(access, item.actor, item.clock);
  return true;
}

bool SimulatedStreams::allowed(const Access& access, const Actor& actor) {
  const char* verb = access.write ? "writes" : "reads";
  const auto block = SimulatedMemory::of_process().block_of(access.memory);
  const auto refused = [&](const std::string& what) {
    add_report(fmt::format("{} {} {}", actor.what, verb, what));
    return false;
  };
  if (!block) return refused(fmt::format("{} bytes at {}: host memory that is not pinned", access.bytes, access.memory));
  if (block->released) return refused(block->name + " after it was released");
  if (access.end() > block->end()) {
    return refused(fmt::format("{} bytes past the end of {}", access.end() - block->end(), block->name));
  }
  if (block->place.kind == PointerAttributes::Kind::device && block->owner != owner_)
    return refused(block->name + " of another device");
  return true;
}

void SimulatedStreams::note(const Access& access, const std::shared_ptr<const Actor>& actor, const Clock& clock) {
  for (const Conflict& conflict : history_.add(access, actor, clock)) {
    const auto block = SimulatedMemory::of_process().block_of(access.memory);
    add_report(fmt::format("{} {} bytes {} to {} of {}, which {} may still be {}: nothing orders the two", actor->what,
                           access.write ? "writes" : "reads", conflict.begin - block->memory, conflict.end - block->memory,
                           block->name, conflict.earlier->what, conflict.earlier_writes ? "writing" : "reading"));
  }
}

void SimulatedStreams::host_access(const Access& access, const std::string& what) {
  const std::scoped_lock lock(mutex_);
  auto actor = current_actor;
  if (actor == nullptr) {
    host_clock_.set(0, ++host_tick_);
    actor = std::make_shared<const Actor>(Actor{0, host_tick_, fmt::format("the host ({})", what)});
  }
  if (access.bytes == 0 || !allowed(access, *actor)) return;
  note(access, actor, current_clock == nullptr ? host_clock_ : *current_clock);
}

// Called by a query: meanwhile some work may have run, or none.
void SimulatedStreams::poll(Lock& lock) {
  if (options_.progress == Progress::thread) return;
  for (auto steps = random_() % 4; steps > 0; --steps) {
    if (!step(lock)) return;
  }
}

void SimulatedStreams::nap(Lock& lock) { changed_.wait_for(lock, std::chrono::microseconds(100)); }

void SimulatedStreams::wait_until(Lock& lock, const std::function<bool()>& done, const std::string& what) {
  const std::int64_t began = now_ns();
  while (!done()) {
    if (options_.progress == Progress::polls && step(lock)) continue;
    if (static_cast<double>(now_ns() - std::max(began, progress_ns_)) * 1e-9 > options_.no_progress_timeout) {
      const std::string message = fmt::format("{} never ends: {}", what, fronts());
      add_report(message);
      throw Error(TNT_SYSTEM, message);
    }
    nap(lock);
  }
}

std::string SimulatedStreams::fronts() const {
  std::string text;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    const Item& item = *stream->queue.front();
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        item.actor != nullptr ? item.actor->what + " does not end" : stream->name + " waits for an event");
  }
  return text;
}

bool SimulatedStreams::all_idle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->queue.empty(); });
}

void SimulatedStreams::run_all() {
  Lock lock(mutex_);
  try {
    wait_until(
        lock, [&] { return all_idle(); }, "the device");
  } catch (const Error&) {  // reported
    for (const auto& stream : streams_) stream->queue.clear();
  }
}

// The device's own thread.
void SimulatedStreams::work() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!step(lock)) nap(lock);
    if (random_() % 8 == 0) changed_.wait_for(lock, std::chrono::microseconds(random_() % 50));
  }
}

void SimulatedStreams::report(const std::string& message) {
  const std::scoped_lock lock(mutex_);
  add_report(message);
}

void SimulatedStreams::refuse(const std::string& message) {
  report(message);
  throw Error(TNT_SYSTEM, message);
}

void SimulatedStreams::add_report(const std::string& message) {
  const bool known = std::find(reports_.begin(), reports_.end(), message) != reports_.end();
  if (!known && reports_.size() < max_reports) reports_.push_back(message);
}

std::vector<std::string> SimulatedStreams::take_reports() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(reports_, {});
}

}  // namespace tnt::testing
