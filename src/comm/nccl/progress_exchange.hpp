// The ranks of a communicator exchange the progress of their devices about once a second, so that a rank that waits in vain can
// name the missing rank. Uses the host's transport and its own thread; the 64 bytes a second cost next to nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// The progress of one rank, in numbers of collectives, which all ranks call in the same order.
struct Progress {
  std::uint64_t started = 0;  // enqueued
  std::uint64_t begun = 0;    // started by the device
  std::uint64_t finished = 0;
  Call next{};                // collective finished + 1, if it was started
  std::int32_t rank = 0;      // in the job
  std::uint32_t leaving = 0;  // this is the rank's last message
};

class ProgressExchange {
 public:
  using LocalProgress = std::function<Progress(std::string* operation)>;  // operation: what this rank waits for, for errors

  // host: for this exchange alone. Every rank of it makes one. period: seconds between rounds.
  ProgressExchange(std::unique_ptr<Communicator> host, double period, double timeout, LocalProgress own);
  ~ProgressExchange();  // calls leave()

  // Tells the others that this rank leaves, in a last round, so that nobody waits for it. Blocks slightly longer than a period
  // at most.
  void leave() noexcept;

  // The progress of all ranks in the last round; empty before the first round.
  [[nodiscard]] std::vector<Progress> latest() const;
  // The next round is late: a rank does not answer.
  [[nodiscard]] bool overdue() const;

 private:
  void loop();
  [[nodiscard]] bool round();  // false after the last round

  std::unique_ptr<Communicator> host_;
  double period_;
  double timeout_;
  LocalProgress own_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Progress> latest_;
  std::int64_t round_ns_;
  bool leaving_ = false;
  bool over_ = false;
  std::thread thread_;
};

struct Missing {
  std::string who;       // "rank 1 has started only 16 operations"
  bool blocked = false;  // as far as is known, the missing rank's device is blocked by other work
};

// The ranks that keep collective `number` from finishing, as far as this progress tells. rank: the asking rank in the job.
[[nodiscard]] Missing find_missing(const std::vector<Progress>& latest, std::uint64_t number, int rank);

// The error message if ranks wait in different calls of the same number, as seen by the first rank that differs.
[[nodiscard]] std::optional<std::string> find_mismatch(const std::vector<Progress>& latest);

}  // namespace tnt
