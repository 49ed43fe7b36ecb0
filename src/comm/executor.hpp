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
#include <span>
#include <thread>
#include <utility>

#include "common/error.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// An operation that was started on the host or on a device.
class Waitable : NonCopyable {
 public:
  virtual ~Waitable() = default;
  // False if the operation has not finished after this many seconds (negative or infinite: no limit). Throws the operation's
  // error.
  [[nodiscard]] virtual bool wait(double seconds) = 0;
};

// Waits until one of the works, which may be null, has finished; nothing after this many seconds (negative: no limit). Works of
// executors wake the waiter; those on devices are looked at every millisecond.
struct FinishedWork {
  std::size_t index;
  std::optional<Error> error;
};
[[nodiscard]] std::optional<FinishedWork> wait_any(std::span<Waitable* const> works, double seconds);

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

// The state of an executor in one word, so that an operation begins and ends with one atomic instruction each. The upper bits
// and the number of users belong to the handles of the C API (src/api/handles.hpp), which find out in the same instruction
// whether the handle exists.
struct ExecutorState {
  static constexpr std::uint64_t user = 1;                         // lowest bits: how many calls use the executor's owner
  static constexpr std::uint64_t here = std::uint64_t{1} << 31;    // an operation runs in a caller's thread
  static constexpr std::uint64_t queued = std::uint64_t{1} << 32;  // started operations have not finished
  static constexpr int tag_shift = 33;

  std::atomic<std::uint64_t> word{0};
};

class Executor {
 public:
  using Operation = std::function<void()>;

  ~Executor();  // waits for operations that were started

  // Uses this state, which must outlive the executor, in place of its own. Before the first operation.
  void use(ExecutorState& state) noexcept { state_ = &state; }

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

  // To be called after `here` was cleared in the state, if `queued` is set there.
  void wake() noexcept;

 private:
  struct Item {
    Operation operation;
    std::shared_ptr<Work> work;
  };
  struct EndHere {
    void operator()(Executor* self) const noexcept { self->end_here(); }
  };

  // While started operations have not finished, no operation begins in a caller's thread.
  [[nodiscard]] bool begin_here() noexcept {
    std::uint64_t now = state_->word.load(std::memory_order_relaxed);
    while ((now & (ExecutorState::here | ExecutorState::queued)) == 0) {
      if (state_->word.compare_exchange_weak(now, now | ExecutorState::here)) return true;
    }
    return false;
  }
  void end_here() noexcept {
    if ((state_->word.fetch_and(~ExecutorState::here) & ExecutorState::queued) != 0) wake();
  }
  void loop();

  ExecutorState own_state_;
  ExecutorState* state_ = &own_state_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  // `queued` is set while it has items or one of them runs
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
