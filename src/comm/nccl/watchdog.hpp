// Sees to it that what is enqueued on a communicator's stream ends: with the ranks' data, or on all ranks with one message
// that names who is missing. In a thread of its own; what is on the path of a step records two events and waits for nothing.
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
#include "device/handles.hpp"

namespace tnt {

// The library under the communicator, as the watchdog needs it. From the watchdog's thread.
class WatchedComm {
 public:
  WatchedComm() = default;
  WatchedComm(const WatchedComm&) = delete;
  WatchedComm& operator=(const WatchedComm&) = delete;
  virtual ~WatchedComm() = default;
  [[nodiscard]] virtual std::optional<Error> async_error() = 0;  // met after a call; does not wait
  virtual void abort() noexcept = 0;                             // ends what is on the device
};

// "all_reduce sum of 10 float32 (operation 17, bucket 3 of gradients: ...)"; number 0: not known.
[[nodiscard]] std::string describe_operation(const Call& call, std::uint64_t number, std::string_view detail);

class Watchdog {
 public:
  // stream: the communicator's; timeout: seconds from when the device comes to an operation until it has finished; rank: in
  // the job; board: to the same ranks as host, null for one rank.
  Watchdog(Device& device, StreamHandle stream, Communicator& host, std::unique_ptr<Communicator> progress_exchange, int rank,
           double timeout, WatchedComm& watched);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Enqueues an operation and watches it: enqueue() puts it on the stream. Not while the stream is captured into a graph: what
  // is replayed has no place of its own in time. One thread at a time.
  template <typename Enqueue>
  void operator()(const Call& call, std::string_view detail, Enqueue&& enqueue) {
    const bool followed = begin(call, detail);
    enqueue();
    if (followed) end();
  }

  void throw_if_aborted() const;
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }
  // Gives others a moment to say why an operation failed here, if it may be for a rank that died; throws if they do.
  void wait_for_cause(const Error& error) const;
  // Ends the job's communication; throws what all ranks say.
  [[noreturn]] void abort_and_throw(tnt_status_t status, const std::string& message);

  // This rank takes its leave of the others' watchdogs, and the thread ends; aborts if the communication was ended.
  void stop() noexcept;

 private:
  struct Operation {
    Call call;
    std::uint64_t number;  // among the collectives; 0: not one
    std::string detail;
    Event begun;
    Event finished;
    bool enqueued = false;
    std::int64_t begun_ns = 0;  // when it was seen to have begun; 0: not yet
  };
  [[nodiscard]] bool begin(const Call& call, std::string_view detail);
  void end();
  [[nodiscard]] Event take_event();

  void loop();
  void check_once();
  void poll_operations();                // what the device has done
  void check_overdue(std::int64_t now);  // the oldest operation that has not finished
  [[nodiscard]] bool poll_front();       // false: nothing new
  void set_error(const Error& error);
  [[nodiscard]] Progress progress(std::string* where);

  Device& device_;
  StreamHandle stream_;
  Communicator& host_;
  WatchedComm& watched_;
  int rank_;
  double timeout_;
  double period_;  // of the board

  mutable std::mutex mutex_;  // all below but what is atomic
  std::deque<Operation> operations_;
  std::vector<Event> events_;  // not in use
  Progress progress_;
  std::optional<Error> error_;
  std::atomic<bool> aborted_{false};
  std::int64_t async_error_ns_ = 0;  // when a fault was first seen; of the thread
  std::int64_t overdue_ns_ = 0;      // when an operation was first seen to be overdue; of the thread
  bool stopping_ = false;
  std::condition_variable changed_;
  std::unique_ptr<ProgressExchange> progress_exchange_;
  std::thread thread_;
};

}  // namespace tnt
