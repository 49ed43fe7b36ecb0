// What the ranks of a communicator tell each other, now and then, about how far their devices have come: so that one who waits
// in vain can say for whom. Over the host's transport, in a thread of its own; 64 bytes a second cost next to nothing.
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

// Of one rank. Numbers count collectives, which all ranks make in the same order.
struct Progress {
  std::uint64_t started = 0;  // enqueued
  std::uint64_t begun = 0;    // that the device has come to
  std::uint64_t finished = 0;
  Call next{};                // collective finished + 1, if it was started
  std::int32_t rank = 0;      // in the job
  std::uint32_t leaving = 0;  // this is the rank's last word
};

class ProgressExchange {
 public:
  using LocalProgress = std::function<Progress(std::string* operation)>;  // place: what this rank waits in, for errors

  // host: for this board alone. Every rank of it makes one; period: seconds between rounds.
  ProgressExchange(std::unique_ptr<Communicator> host, double period, double timeout, LocalProgress own);
  ProgressExchange(const ProgressExchange&) = delete;
  ProgressExchange& operator=(const ProgressExchange&) = delete;
  ~ProgressExchange();  // leaves

  // Tells the others that this rank goes, so that nobody waits for its word: the last round. Waits for it at most a little
  // longer than a period.
  void leave() noexcept;

  // All ranks' words in the last round; empty before the first.
  [[nodiscard]] std::vector<Progress> latest() const;
  // The round that should have come has not: a rank does not answer.
  [[nodiscard]] bool overdue() const;

 private:
  void loop();
  [[nodiscard]] bool round();  // false: it was the last

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
  bool blocked = false;  // who is missing is held up by something else, as far as is known
};

// Who keeps collective `number` from finishing, as far as these words tell; rank: who asks, in the job.
[[nodiscard]] Missing find_missing(const std::vector<Progress>& latest, std::uint64_t number, int rank);

// The message if ranks wait in different calls of one number, as seen by the first that differs.
[[nodiscard]] std::optional<std::string> find_mismatch(const std::vector<Progress>& latest);

}  // namespace tnt
