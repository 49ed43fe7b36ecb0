// Runs one communicator's operations one after another: in the caller's thread while nobody asked for more, else in a
// thread of its own, in the order of the calls.
#pragma once

#include <condition_variable>
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

// An operation that was started: finished or not, and how it ended.
class Work {
 public:
  void finish(std::optional<Error> error);
  // False if it has not finished after so many seconds (negative or infinite: waits for ever); throws the operation's error.
  [[nodiscard]] bool wait(double seconds);

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

  void run(const Operation& operation);  // throws the operation's error
  [[nodiscard]] std::shared_ptr<Work> start(Operation operation);

 private:
  struct Item {
    Operation operation;
    std::shared_ptr<Work> work;
  };
  void loop();
  void set_idle();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool busy_ = false;  // an operation runs, here or in a caller's thread
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
