// The barrier of the shared-memory collectives. Each rank announces its call and arrives; a rank that waits too long learns
// which rank is missing and why.
//
// Every rank looks at the line of every other one. Where ranks are in domains (domains.hpp), only the first rank of each, its
// leader, looks at those of its domain; the leaders look at each other's, and each then releases its domain.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/call.hpp"
#include "comm/communicator.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/shm/peer_monitor.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

class ShmBarrier {
 public:
  [[nodiscard]] static std::size_t bytes(std::size_t members) noexcept;

  // memory: bytes(members) zero bytes that all members share. members: their ranks in the job; self: an index into members.
  // lane: records the calls.
  ShmBarrier(PeerMonitor& monitor, std::byte* memory, std::vector<int> members, std::size_t self, FlightLane lane = {});

  // Begins a call. If a member has made another call, the first arrive_and_wait fails on all ranks.
  void begin(const Call& call, const CallContext& context);
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }  // the number of the call
  // Ends it in the record. A call that fails has no end there.
  void end() noexcept { lane_.end(exact_ ? now_ns() : waited_until_); }

  // Returns when all members have arrived as often as this rank. Their earlier writes are then visible. Throws and aborts the
  // job: TNT_MISMATCH, TNT_PEER_LOST, TNT_TIMEOUT. Also throws the error of another rank's abort.
  void arrive_and_wait();

  // Waits with the same deadline and errors until missing(member) is false for all members. For calls without
  // arrive_and_wait(): they compare signature() instead.
  template <typename Missing>
  void await(const Missing& missing);
  void notify() const noexcept { notify_all(control_->event_count); }
  [[nodiscard]] std::uint64_t signature() const noexcept { return tnt::signature(call_, calls_); }

  // Throws if a member is in another call than this rank.
  void compare_calls();

  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }

 private:
  struct Control {
    EventCount event_count;
  };
  struct Member {
    alignas(64) std::atomic<std::uint64_t> arrived;  // barriers
    std::atomic<std::uint64_t> begun;                // calls
    // of even and odd calls: a rank that is one call ahead must not overwrite a call that others still read
    std::array<Call, 2> calls;
  };
  // What the leaders tell: each other, and the members of their domains.
  struct Domain {
    alignas(64) std::atomic<std::uint64_t> arrived;   // barriers: of all members of the domain
    std::array<std::uint64_t, 2> signatures;          // of their even and odd calls
    alignas(64) std::atomic<std::uint64_t> released;  // barriers: of all members of all domains
    EventCount event_count;                           // members sleep here until they are released
  };

  void find_domains();
  void meet_in_domains();
  [[nodiscard]] bool domain_has_arrived(std::size_t& next);
  [[nodiscard]] bool leaders_have_met(std::size_t& next);

  // Waits until ready() is true. check(deadline) is called now and then, as in wait_until.
  template <typename Ready, typename Check>
  void wait(EventCount& event_count, const Ready& ready, const Check& check);
  void check_progress(const std::function<bool(std::size_t)>& missing, const Deadline& deadline);
  [[nodiscard]] BackoffPolicy backoff() const noexcept;
  [[nodiscard]] bool missing(std::size_t member) const noexcept {
    return members_memory_[member].arrived.load(std::memory_order_acquire) < round_;
  }
  void record(std::int64_t begin_ns) noexcept;
  [[nodiscard]] std::string waiter() const;  // "rank 0, all_reduce sum of 10 float32 (call 7, bucket 3 ...)"

  PeerMonitor& monitor_;
  Control* control_;
  Member* members_memory_;
  std::vector<int> members_;
  Domain* domains_memory_;
  std::size_t self_;
  BackoffPolicy backoff_;
  std::uint64_t round_ = 0;
  std::uint64_t calls_ = 0;
  bool compared_ = true;
  std::vector<std::size_t> borders_;  // of domains; empty: there is one level
  std::size_t domain_ = 0;            // this rank's
  Call call_;
  CallContext context_{0.0};
  FlightLane lane_;
  bool exact_ = false;             // the record has the times of the call as the clock says
  bool recorded_ = true;           // the call is in the record
  std::int64_t waited_until_ = 0;  // the end of the call's last wait, if the clock was read
};

inline void ShmBarrier::record(std::int64_t begin_ns) noexcept {
  lane_.begin(call_, calls_, context_.detail, begin_ns);
  recorded_ = true;
}

template <typename Missing>
void ShmBarrier::await(const Missing& missing) {
  std::size_t next = 0;  // all members before it have arrived
  const auto all_here = [&] {
    while (next < members_.size() && !missing(next)) ++next;
    return next == members_.size();
  };
  wait(control_->event_count, all_here, [&](const Deadline& deadline) { check_progress(missing, deadline); });
}

template <typename Ready, typename Check>
void ShmBarrier::wait(EventCount& event_count, const Ready& ready, const Check& check) {
  if (!recorded_) record(0);  // here, where a rank mostly waits, it costs the call no time
  if (ready()) return;
  const Deadline deadline(context_.timeout);
  lane_.waits(deadline.begin_ns());
  waited_until_ = wait_until(event_count, backoff(), ready, [&] { check(deadline); });
}

}  // namespace tnt
