#include "comm/executor.hpp"

#include <chrono>

#include "base/thread.hpp"

namespace tnt {

void Work::finish(std::optional<Error> error) {
  const std::scoped_lock lock(mutex_);
  finished_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

bool Work::wait(double seconds) {
  std::unique_lock lock(mutex_);
  constexpr double longest = 1e9;  // a longer wait would overflow the clock
  if (seconds < 0 || seconds > longest) {
    changed_.wait(lock, [&] { return finished_; });
  } else {
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return finished_; });
  }
  if (finished_ && error_) throw Error(*error_);
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
