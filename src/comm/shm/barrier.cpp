#include "comm/shm/barrier.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "comm/error_messages.hpp"
#include "comm/shm/domains.hpp"

namespace tnt {

std::size_t ShmBarrier::bytes(std::size_t members) noexcept {
  return sizeof(Control) + members * sizeof(Member) + members / 2 * sizeof(Domain);
}

ShmBarrier::ShmBarrier(PeerMonitor& monitor, std::byte* memory, std::vector<int> members, std::size_t self, FlightLane lane)
    : monitor_(monitor),
      control_(reinterpret_cast<Control*>(memory)),
      members_memory_(reinterpret_cast<Member*>(memory + sizeof(Control))),
      members_(std::move(members)),
      domains_memory_(reinterpret_cast<Domain*>(members_memory_ + members_.size())),
      self_(self),
      backoff_(monitor.world().backoff_policy(members_)),
      lane_(std::move(lane)) {}

void ShmBarrier::begin(const Call& call, const CallContext& context) {
  monitor_.throw_if_aborted();
  call_ = call;
  context_ = context;
  compared_ = false;
  if (calls_ == 1) {  // all ranks have joined by now
    backoff_ = monitor_.world().backoff_policy(members_);
    find_domains();
  }
  Member& self = members_memory_[self_];
  self.calls[++calls_ % 2] = call;
  self.begun.store(calls_, std::memory_order_release);
  waited_until_ = 0;
  exact_ = lane_.enabled() && FlightLane::is_exact(call, context);
  recorded_ = !lane_.enabled();
  if (exact_) record(now_ns());
}

void ShmBarrier::arrive_and_wait() {
  members_memory_[self_].arrived.store(++round_, std::memory_order_release);
  notify_all(control_->event_count);
  if (!borders_.empty()) return meet_in_domains();
  await([this](std::size_t member) { return missing(member); });
  if (!compared_) compare_calls();
  compared_ = true;
}

void ShmBarrier::find_domains() {
  borders_ = domain_borders(monitor_.world().domains(members_));
  if (borders_.empty()) return;
  domain_ = static_cast<std::size_t>(std::ranges::upper_bound(borders_, self_) - borders_.begin()) - 1;
  log(LogLevel::debug, "barriers of {} ranks in {} domains with a cache each", members_.size(), borders_.size() - 1);
}

// A rank that has seen itself that all have arrived needs nobody's word: their leaders may have failed since.
void ShmBarrier::meet_in_domains() {
  Domain& own = domains_memory_[domain_];
  bool all_seen = false;
  const auto check = [&](const Deadline& deadline) {
    std::size_t next = 0;
    while (next < members_.size() && !missing(next)) ++next;
    all_seen = next == members_.size();
    if (!all_seen) check_progress([this](std::size_t member) { return missing(member); }, deadline);
  };
  const bool leads = self_ == borders_[domain_];
  if (leads) {
    std::size_t member = self_ + 1;
    std::size_t leader = 0;
    wait(
        control_->event_count, [&] { return (domain_has_arrived(member) && leaders_have_met(leader)) || all_seen; }, check);
  } else {
    wait(
        own.event_count, [&] { return own.released.load(std::memory_order_acquire) >= round_ || all_seen; }, check);
  }
  if (all_seen && !compared_) compare_calls();
  compared_ = true;
  if (!leads) return;
  own.released.store(round_, std::memory_order_release);
  notify_all(own.event_count);
}

// next: all members of the domain before it have arrived. When the last one has, the other leaders learn it.
bool ShmBarrier::domain_has_arrived(std::size_t& next) {
  while (next < borders_[domain_ + 1] && !missing(next)) ++next;
  if (next < borders_[domain_ + 1]) return false;
  Domain& own = domains_memory_[domain_];
  if (own.arrived.load(std::memory_order_relaxed) == round_) return true;
  for (std::size_t member = self_ + 1; member < next && !compared_; ++member) {
    if (members_memory_[member].calls[calls_ % 2] != call_) compare_calls();
  }
  if (!compared_) own.signatures[calls_ % 2] = signature();  // once a call: others may still read it in the next barrier
  own.arrived.store(round_, std::memory_order_release);
  notify_all(control_->event_count);
  return true;
}

// next: the leaders of all domains before it have arrived.
bool ShmBarrier::leaders_have_met(std::size_t& next) {
  for (; next + 1 < borders_.size(); ++next) {
    const Domain& other = domains_memory_[next];
    if (other.arrived.load(std::memory_order_acquire) < round_) return false;
    if (!compared_ && other.signatures[calls_ % 2] != signature()) compare_calls();
  }
  return true;
}

// A call without a hint is all that its rank does, and other ranks are in it, too. Before those of a reducer, they compute.
BackoffPolicy ShmBarrier::backoff() const noexcept {
  if (context_.wait_hint == WaitHint::unknown) return backoff_;
  const bool near = compared_;  // all members are in this call
  return near && context_.wait_hint == WaitHint::idle ? backoff_.spinning() : backoff_.beside_computing();
}

// A rank in another call may never arrive. The waiting ranks must find out.
void ShmBarrier::check_progress(const std::function<bool(std::size_t)>& missing, const Deadline& deadline) {
  lane_.still_waits(now_ns());
  if (!compared_) compare_calls();
  monitor_.check({.members = members_, .missing = missing, .waiter = [this] { return waiter(); }}, deadline);
}

void ShmBarrier::compare_calls() {
  std::size_t reference = members_.size();  // the first member that has begun
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (members_memory_[member].begun.load(std::memory_order_acquire) < calls_) continue;
    reference = std::min(reference, member);
    const Call& first = members_memory_[reference].calls[calls_ % 2];
    const Call& other = members_memory_[member].calls[calls_ % 2];
    if (other == first) continue;
    monitor_.abort_and_throw(TNT_MISMATCH, mismatch_message(members_[member], other, members_[reference], first, calls_));
  }
}

std::string ShmBarrier::waiter() const {
  const std::string detail = context_.detail.empty() ? "" : fmt::format(", {}", context_.detail);
  return fmt::format("rank {} in {} (call {}{})", members_[self_], describe(call_), calls_, detail);
}

}  // namespace tnt
