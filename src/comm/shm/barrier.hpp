// The barrier on which every shared-memory collective is built: each rank says which call it is in and arrives; who waits
// too long learns who is missing and why.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "comm/shm/peer_monitor.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

class ShmBarrier {
 public:
  [[nodiscard]] static std::size_t bytes(std::size_t members) noexcept;

  // memory: bytes(members) zero bytes that all members share. members: their ranks in the job; self: an index into them.
  ShmBarrier(PeerMonitor& monitor, std::byte* memory, std::vector<int> members, std::size_t self);

  // Begins a call: after its first arrive_and_wait, a rank that made another call is an error on all ranks.
  void begin(const Call& call, const CallContext& context);

  // Returns when all members have called it as often as this rank. What they wrote before is visible after. Throws, and ends
  // the job's communication: TNT_MISMATCH, TNT_PEER_LOST, TNT_TIMEOUT; or throws what another rank ended it with.
  void arrive_and_wait();

  // Waits in the same way, with the same deadline and errors, until missing(member) is false for all members. For calls that
  // do without arrive_and_wait(): they compare with signature() and, if it differs, refuse.
  template <typename Missing>
  void await(const Missing& missing);
  void notify() const noexcept { notify_all(control_->event_count); }
  [[nodiscard]] std::uint64_t signature() const noexcept { return tnt::signature(call_, calls_); }

  // Throws if a member that has begun this rank's call has begun another one.
  void compare_calls();

  // This rank will not come again. True for the last one: the memory is nobody's then.
  [[nodiscard]] bool leave() noexcept;
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }

 private:
  struct Control {
    EventCount event_count;
    alignas(64) std::atomic<std::uint32_t> left;
  };
  struct Member {
    alignas(64) std::atomic<std::uint64_t> arrived;  // meetings
    std::atomic<std::uint64_t> begun;                // calls
    std::array<Call, 2> calls;  // of even and odd calls: who is one call ahead must not overwrite what others still read
  };

  void check_progress(const WaitInfo& info, const Deadline& deadline);
  [[nodiscard]] bool missing(std::size_t member) const noexcept {
    return members_memory_[member].arrived.load(std::memory_order_acquire) < round_;
  }
  [[nodiscard]] std::string waiter() const;  // "rank 0, all_reduce sum of 10 float32 (call 7, bucket 3 ...)"

  PeerMonitor& monitor_;
  Control* control_;
  Member* members_memory_;
  std::vector<int> members_;
  std::size_t self_;
  BackoffPolicy backoff_;
  std::uint64_t round_ = 0;
  std::uint64_t calls_ = 0;
  bool compared_ = true;
  Call call_;
  CallContext context_{0.0};
};

template <typename Missing>
void ShmBarrier::await(const Missing& missing) {
  std::size_t next = 0;  // all before it have come
  const auto all_here = [&] {
    while (next < members_.size() && !missing(next)) ++next;
    return next == members_.size();
  };
  if (all_here()) return;
  const Deadline deadline(context_.timeout);
  const WaitInfo info{.members = members_, .missing = missing, .waiter = [&] { return waiter(); }};
  const bool near = compared_;  // all are in this call
  wait_until(control_->event_count, near && context_.wait_hint == WaitHint::idle ? backoff_.spinning() : backoff_, all_here,
             [&] { check_progress(info, deadline); });
}

}  // namespace tnt
