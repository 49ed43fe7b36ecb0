// Ensures that the work on a communicator's stream ends, with the result or on all ranks with one error message that names the
// missing rank. Runs in its own thread; the path of a step only records two events.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/nccl/progress_exchange.hpp"
#include "common/non_copyable.hpp"
#include "device/handles.hpp"

namespace tnt {

// The NCCL communicator as the watchdog sees it. Called from the watchdog's thread.
class WatchedComm : NonCopyable {
 public:
  virtual ~WatchedComm() = default;
  [[nodiscard]] virtual std::optional<Error> async_error() = 0;  // an asynchronous error, if known; does not wait
  virtual void abort() noexcept = 0;                             // ends the work on the device
};

// "all_reduce sum of 10 float32 (operation 17, bucket 3 of gradients: ...)"; number 0: unknown.
[[nodiscard]] std::string describe_operation(const Call& call, std::uint64_t number, std::string_view detail);

class Watchdog {
 public:
  // stream: of the communicator. progress_exchange: a communicator of the same ranks as host; null for a single rank. rank: in
  // the job. timeout: seconds from the device's start of an operation to its end.
  Watchdog(Device& device, StreamHandle stream, Communicator& host, std::unique_ptr<Communicator> progress_exchange, int rank,
           double timeout, WatchedComm& watched);
  ~Watchdog();

  // Enqueues an operation with enqueue() and watches it. Operations of a captured stream are not watched, because a replay has
  // no fixed time: returns false then. One thread at a time.
  template <typename Enqueue>
  bool operator()(const Call& call, std::string_view detail, Enqueue&& enqueue) {
    last_finished_ = nullptr;
    const bool followed = begin(call, detail);
    enqueue();
    if (followed) end();
    return followed;
  }

  // Makes the communicator's stream wait for what is on another one, which is not being captured. The event is the next
  // operation's beginning as well: the device can start it when that and the operation before have ended.
  void follow(StreamHandle stream);

  // Makes another stream wait for the last operation, by the event after it. False: it has none. Called by the thread that
  // enqueues; the event is not recorded again before the next operation.
  [[nodiscard]] bool follow_last(StreamHandle stream) {
    if (last_finished_ == nullptr) return false;
    device_.wait(stream, last_finished_);
    return true;
  }

  void throw_if_aborted() const;
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }
  // If the operation may have failed because another rank died, gives the other ranks a moment to report the cause, and throws
  // it.
  void wait_for_cause(const Error& error) const;
  // Aborts the job; throws the error that all ranks report.
  [[noreturn]] void abort_and_throw(tnt_status_t status, const std::string& message);

  // Leaves the progress exchange and ends the thread. Aborts the communicator if the job was aborted.
  void stop() noexcept;

 private:
  struct Operation {
    Call call;
    std::uint64_t number;  // number among the collectives; 0: not a collective
    std::string detail;
    Event begun;
    Event finished;
    bool enqueued = false;
    std::int64_t begun_ns = 0;  // when its start was seen; 0: not yet
  };
  [[nodiscard]] bool begin(const Call& call, std::string_view detail);
  void end();
  [[nodiscard]] Event take_event();

  void loop();
  void check_once();
  void poll_operations();                // updates the progress from the device
  void check_overdue(std::int64_t now);  // of the oldest unfinished operation
  [[nodiscard]] bool poll_front();       // false if nothing has changed
  void set_error(const Error& error);
  [[nodiscard]] Progress progress(std::string* where);

  Device& device_;
  StreamHandle stream_;
  Communicator& host_;
  WatchedComm& watched_;
  int rank_;
  double timeout_;
  double period_;                        // of the progress exchange
  EventHandle last_finished_ = nullptr;  // after the last operation; for the thread that enqueues
  std::optional<Event> next_begun_;      // of follow(); for the thread that enqueues

  mutable std::mutex mutex_;  // protects the members below, except atomics
  std::deque<Operation> operations_;
  std::vector<Event> events_;  // free events
  Progress progress_;
  std::optional<Error> error_;
  std::atomic<bool> aborted_{false};
  std::int64_t async_error_ns_ = 0;  // when an asynchronous error was first seen; for the thread
  std::int64_t overdue_ns_ = 0;      // when an operation was first seen to be overdue; for the thread
  bool stopping_ = false;
  std::condition_variable changed_;
  std::unique_ptr<ProgressExchange> progress_exchange_;
  std::thread thread_;
};

}  // namespace tnt
