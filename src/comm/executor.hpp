// Runs one communicator's operations one after another: in the caller's thread while nobody asked for more, else in a
// thread of its own, in the order of the calls.
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

// An operation that was started, here or on a device.
class Waitable {
 public:
  Waitable() = default;
  Waitable(const Waitable&) = delete;
  Waitable& operator=(const Waitable&) = delete;
  virtual ~Waitable() = default;
  // False if it has not finished after so many seconds (negative or infinite: waits for ever); throws the operation's error.
  [[nodiscard]] virtual bool wait(double seconds) = 0;
};

// One that an executor runs: finished or not, and how it ended.
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
  ~Executor();  // waits for what was started

  // Throws the operation's error. On an idle executor nothing is locked or allocated.
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
  // `here`, and how many operations were started and have not ended: while there is one, nothing begins in a caller's thread
  std::atomic<std::uint32_t> state_{0};
  bool stopping_ = false;
  std::thread thread_;
};

// An executor for each peer and direction, made when it is first asked for: messages of different ones do not wait for each
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
