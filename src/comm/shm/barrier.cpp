#include "comm/shm/barrier.hpp"

#include <algorithm>

#include "comm/error_messages.hpp"

namespace tnt {

std::size_t ShmBarrier::bytes(std::size_t members) noexcept { return sizeof(Control) + members * sizeof(Member); }

ShmBarrier::ShmBarrier(PeerMonitor& monitor, std::byte* memory, std::vector<int> members, std::size_t self, FlightLane lane)
    : monitor_(monitor),
      control_(reinterpret_cast<Control*>(memory)),
      members_memory_(reinterpret_cast<Member*>(memory + sizeof(Control))),
      members_(std::move(members)),
      self_(self),
      backoff_(monitor.world().backoff_policy(members_)),
      lane_(std::move(lane)) {}

void ShmBarrier::begin(const Call& call, const CallContext& context) {
  monitor_.throw_if_aborted();
  call_ = call;
  context_ = context;
  compared_ = false;
  if (calls_ == 1) backoff_ = monitor_.world().backoff_policy(members_);  // all ranks have joined by now
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
  await([this](std::size_t member) { return missing(member); });
  if (!compared_) compare_calls();
  compared_ = true;
}

// A rank in another call may never arrive. The waiting ranks must find out.
void ShmBarrier::check_progress(const WaitInfo& info, const Deadline& deadline) {
  lane_.still_waits(now_ns());
  if (!compared_) compare_calls();
  monitor_.check(info, deadline);
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
