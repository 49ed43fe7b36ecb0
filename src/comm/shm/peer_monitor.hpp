// Decides whether a wait in shared memory may continue. Every waiting thread asks once in 20 ms.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

// The ranks that a thread waits for.
struct WaitInfo {
  const std::vector<int>& members;           // ranks in the job
  std::function<bool(std::size_t)> missing;  // whether this member has not arrived yet
  std::function<std::string()> waiter;       // who waits, and where: "rank 0 in all_reduce sum of 10 float32 (call 7)"
};

// One for each communicator, used by all of its threads.
class PeerMonitor {
 public:
  explicit PeerMonitor(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  void throw_if_aborted() const;

  // Throws and aborts the job: TNT_PEER_LOST if a missing member died or left, TNT_TIMEOUT if the deadline has passed. Also
  // throws the error of another rank's abort, or TNT_ABORTED if the communicator is being destroyed.
  void check(const WaitInfo& info, const Deadline& deadline);

  [[noreturn]] void abort_and_throw(tnt_status_t status, const std::string& message);

  void cancel() noexcept { cancelled_ = true; }
  [[nodiscard]] ShmWorld& world() const noexcept { return *world_; }

 private:
  std::shared_ptr<ShmWorld> world_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace tnt
