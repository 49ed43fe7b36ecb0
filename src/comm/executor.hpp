// Runs the operations of a communicator one after another: in the caller's thread while nothing is queued, else in its own
// thread, in the order of the calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace tnt {

// An operation that was started on the host or on a device.
class Waitable {
 public:
  Waitable() = default;
  Waitable(const Waitable&) = delete;
  Waitable& operator=(const Waitable&) = delete;
  virtual ~Waitable() = default;
  // False if the operation has not finished after this many seconds (negative or infinite: no limit). Throws the operation's
  // error.
  [[nodiscard]] virtual bool wait(double seconds) = 0;
};

// An operation of an executor: whether it has finished, and its error.
class Work final : public Waitable {
 public:
  void finish(std::optional<Error> error);
  [[nodiscard]] bool wait(double seconds) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::optional<Error> error_;
};

class Executor {
 public:
  using Operation = std::function<void()>;

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();  // waits for operations that were started

  // Throws the operation's error. An idle executor does not lock or allocate.
  template <typename F>
  void run(F&& operation) {
    if (!begin_here()) {
      (void)start(std::forward<F>(operation))->wait(-1);
      return;
    }
    const std::unique_ptr<Executor, EndHere> end(this);
    operation();
  }
  [[nodiscard]] std::shared_ptr<Work> start(Operation operation);

 private:
  struct Item {
    Operation operation;
    std::shared_ptr<Work> work;
  };
  struct EndHere {
    void operator()(Executor* self) const noexcept { self->end_here(); }
  };
  static constexpr std::uint32_t here = 1U << 31;  // an operation runs in a caller's thread

  [[nodiscard]] bool begin_here() noexcept {
    std::uint32_t idle = 0;
    return state_.compare_exchange_strong(idle, here);
  }
  void end_here() noexcept {
    if (state_.fetch_and(~here) != here) wake();
  }
  void wake() noexcept;
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  // the flag `here`, and the number of started operations that have not finished; with any, no operation begins in a caller's
  // thread
  std::atomic<std::uint32_t> state_{0};
  bool stopping_ = false;
  std::thread thread_;
};

// One executor for each peer and direction, created on first use, so that messages of different peers do not wait for each
// other.
class Executors {
 public:
  enum class Direction { to, from };
  [[nodiscard]] Executor& of(int peer, Direction direction);

 private:
  std::mutex mutex_;
  std::map<std::pair<int, Direction>, Executor> executors_;
};

}  // namespace tnt
