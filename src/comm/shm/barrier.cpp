#include "comm/shm/barrier.hpp"

namespace tnt {

std::size_t ShmBarrier::bytes(std::size_t members) noexcept { return sizeof(Control) + members * sizeof(Member); }

ShmBarrier::ShmBarrier(Watch& watch, std::byte* memory, std::vector<int> members, std::size_t self)
    : watch_(watch),
      control_(reinterpret_cast<Control*>(memory)),
      members_memory_(reinterpret_cast<Member*>(memory + sizeof(Control))),
      members_(std::move(members)),
      self_(self),
      patience_(patience_for(members_.size())) {}

bool ShmBarrier::leave() noexcept { return control_->left.fetch_add(1) + 1 == members_.size(); }

void ShmBarrier::begin(const Call& call, const CallContext& context) {
  watch_.throw_if_aborted();
  call_ = call;
  context_ = context;
  compared_ = false;
  members_memory_[self_].calls[++calls_ % 2] = call;
}

void ShmBarrier::meet() {
  ++round_;
  members_memory_[self_].arrived.store(round_);
  ring(control_->bell);
  const auto all_here = [&] {
    for (std::size_t member = 0; member < members_.size(); ++member) {
      if (missing(member)) return false;
    }
    return true;
  };
  if (!all_here()) {
    const Deadline deadline(context_.timeout);
    const Wanted wanted{
        .members = members_, .missing = [&](std::size_t m) { return missing(m); }, .place = [&] { return place(); }};
    wait_until(control_->bell, patience_, all_here, [&] { watch_.check(wanted, deadline); });
  }
  if (!compared_) compare_calls();
}

void ShmBarrier::compare_calls() {
  compared_ = true;
  const Call& first = members_memory_[0].calls[calls_ % 2];
  for (std::size_t member = 1; member < members_.size(); ++member) {
    const Call& other = members_memory_[member].calls[calls_ % 2];
    if (other == first) continue;
    watch_.end_job(TNT_MISMATCH,
                   fmt::format("rank {} called {} while rank {} called {} (call {} of their communicator): all ranks "
                               "must make the same calls in the same order",
                               members_[member], describe(other), members_[0], describe(first), calls_));
  }
}

std::string ShmBarrier::place() const {
  const std::string detail = context_.detail.empty() ? "" : fmt::format(", {}", context_.detail);
  return fmt::format("rank {} in {} (call {}{})", members_[self_], describe(call_), calls_, detail);
}

}  // namespace tnt
