// Decides whether a wait in shared memory may continue. Every waiting thread asks once in 20 ms.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "comm/communicator.hpp"
#include "comm/shm/error_record.hpp"
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
  // own: the record of the communicator's errors; null in tests of its parts.
  explicit PeerMonitor(std::shared_ptr<ShmWorld> world, ErrorRecord* own = nullptr) : world_(std::move(world)), own_(own) {}

  void throw_if_aborted() const;

  // Throws and aborts the job, or the communicator: TNT_PEER_LOST if a missing member died or left, TNT_TIMEOUT if the deadline
  // has passed. Also throws the error of another rank's abort, or TNT_ABORTED if the communicator is being destroyed.
  void check(const WaitInfo& info, const Deadline& deadline);

  // As far as the scope says.
  void abort(tnt_status_t status, const std::string& message) noexcept;
  [[noreturn]] void abort_and_throw(tnt_status_t status, const std::string& message);
  [[nodiscard]] std::optional<Error> async_error() const;  // of the job, or of the communicator

  // Only between calls.
  void set_scope(ErrorScope scope) noexcept { scope_ = scope; }
  [[nodiscard]] ErrorScope scope() const noexcept { return scope_; }
  // Also fails with the errors of this record, which `memory` keeps.
  void follow(ErrorRecord* record, std::shared_ptr<void> memory) {
    followed_ = record;
    followed_memory_ = std::move(memory);
  }

  void cancel() noexcept { cancelled_ = true; }
  [[nodiscard]] ShmWorld& world() const noexcept { return *world_; }

 private:
  std::shared_ptr<ShmWorld> world_;
  ErrorRecord* own_;
  ErrorRecord* followed_ = nullptr;
  std::shared_ptr<void> followed_memory_;
  std::atomic<ErrorScope> scope_{ErrorScope::job};
  std::atomic<bool> cancelled_{false};
};

}  // namespace tnt
