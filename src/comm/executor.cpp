#include "comm/executor.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"
#include "base/thread.hpp"

namespace tnt {
namespace {

// The ends of all works of this process, for those that wait for one of several.
struct WorkEnds {
  std::atomic<int> waiters{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t count = 0;  // while somebody waits
};

WorkEnds& work_ends() {
  static auto* const instance = new WorkEnds;  // never destroyed: works may end while the process exits
  return *instance;
}

// A waiter is counted before it looks at the work, and the work has ended before this call: one of the two sees the other.
void announce_end() {
  WorkEnds& ends = work_ends();
  if (ends.waiters.load() == 0) return;
  const std::scoped_lock lock(ends.mutex);
  ++ends.count;
  ends.changed.notify_all();
}

std::optional<FinishedWork> find_finished(std::span<Waitable* const> works) {
  for (std::size_t i = 0; i < works.size(); ++i) {
    try {
      if (works[i] != nullptr && works[i]->wait(0)) return FinishedWork{i, std::nullopt};
    } catch (const Error& error) {
      return FinishedWork{i, error};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<FinishedWork> wait_any(std::span<Waitable* const> works, double seconds) {
  constexpr double longest = 1e9;  // a longer wait would overflow the clock
  constexpr std::chrono::milliseconds between_looks{1};
  const Deadline deadline(seconds < 0 ? longest : std::min(seconds, longest));
  WorkEnds& ends = work_ends();
  const Counted counted(ends.waiters);
  std::unique_lock lock(ends.mutex);
  while (true) {
    const std::uint64_t seen = ends.count;
    lock.unlock();
    if (auto finished = find_finished(works)) return finished;
    if (deadline.passed()) return std::nullopt;
    lock.lock();
    (void)ends.changed.wait_for(lock, between_looks, [&] { return ends.count != seen; });
  }
}

void Work::finish(std::optional<Error> error) {
  {
    const std::scoped_lock lock(mutex_);
    finished_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  announce_end();
}

bool Work::wait(double seconds) {
  std::unique_lock lock(mutex_);
  constexpr double longest = 1e9;  // a longer wait would overflow the clock
  if (seconds < 0 || seconds > longest) {
    changed_.wait(lock, [&] { return finished_; });
  } else {
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return finished_; });
  }
  // A copy would share its text with error_, which another thread may delete: the C++ library counts the users of the text in
  // a way that ThreadSanitizer does not see.
  if (finished_ && error_) throw Error(error_->status(), error_->what());
  return finished_;
}

Executor::~Executor() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// The lock ensures that the thread is not between its check and its wait.
void Executor::wake() noexcept {
  const std::scoped_lock lock(mutex_);
  changed_.notify_all();
}

std::shared_ptr<Work> Executor::start(Operation operation) {
  auto work = std::make_shared<Work>();
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("tnt-comm", [this] { loop(); });
  queue_.push_back({std::move(operation), work});
  state_->word.fetch_or(ExecutorState::queued);
  changed_.notify_all();
  return work;
}

void Executor::loop() {
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return (state_->word.load() & ExecutorState::here) == 0 && (stopping_ || !queue_.empty()); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    std::optional<Error> error;
    try {
      item.operation();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error = Error(TNT_SYSTEM, caught.what());
    }
    {
      const std::scoped_lock lock(mutex_);
      if (queue_.empty()) state_->word.fetch_and(~ExecutorState::queued);
    }
    item.work->finish(std::move(error));
  }
}

Executor& Executors::of(int peer, Direction direction) {
  const std::scoped_lock lock(mutex_);
  return executors_[{peer, direction}];
}

}  // namespace tnt
