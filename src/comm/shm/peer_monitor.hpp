// Whether waiting for others still makes sense: looked at by whoever waits in shared memory, every 20 ms.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

// What is being waited for, by one who waits.
struct WaitInfo {
  const std::vector<int>& members;           // ranks in the job
  std::function<bool(std::size_t)> missing;  // whether this member has not come yet
  std::function<std::string()> waiter;       // "rank 0 in all_reduce sum of 10 float32 (call 7)": who waits, and where
};

// One for each communicator; used by all of its threads.
class PeerMonitor {
 public:
  explicit PeerMonitor(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  void throw_if_aborted() const;

  // Throws, and ends the job's communication with it: TNT_PEER_LOST if one who is missing died or left, TNT_TIMEOUT if the
  // deadline has passed; or throws what another rank ended it with, or that the communicator is being destroyed.
  void check(const WaitInfo& info, const Deadline& deadline);

  [[noreturn]] void abort_and_throw(tnt_status_t status, const std::string& message);

  void cancel() noexcept { cancelled_ = true; }
  [[nodiscard]] ShmWorld& world() const noexcept { return *world_; }

 private:
  std::shared_ptr<ShmWorld> world_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace tnt
