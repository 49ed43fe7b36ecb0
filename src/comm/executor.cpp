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
  constexpr double longest = 1e9;  // more would overflow the clock, and is for ever
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

void Executor::set_idle() {
  const std::scoped_lock lock(mutex_);
  busy_ = false;
  changed_.notify_all();
}

void Executor::run(const Operation& operation) {
  bool mine = false;
  {
    const std::scoped_lock lock(mutex_);
    mine = queue_.empty() && !busy_;
    if (mine) busy_ = true;
  }
  if (!mine) {
    (void)start(operation)->wait(-1);
    return;
  }
  const std::unique_ptr<Executor, void (*)(Executor*)> idle(this, [](Executor* self) { self->set_idle(); });
  operation();
}

std::shared_ptr<Work> Executor::start(Operation operation) {
  auto work = std::make_shared<Work>();
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("tnt-comm", [this] { loop(); });
  queue_.push_back({std::move(operation), work});
  changed_.notify_all();
  return work;
}

void Executor::loop() {
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !busy_ && (stopping_ || !queue_.empty()); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    std::optional<Error> error;
    try {
      item.operation();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error = Error(TNT_SYSTEM, caught.what());
    }
    set_idle();
    item.work->finish(std::move(error));
  }
}

Executor& Executors::of(int peer, Direction direction) {
  const std::scoped_lock lock(mutex_);
  return executors_[{peer, direction}];
}

}  // namespace tnt
