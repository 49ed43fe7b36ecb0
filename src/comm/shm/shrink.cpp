#include "comm/shm/shrink.hpp"

#include <atomic>
#include <bitset>

#include "comm/shm/wait.hpp"

namespace tnt {

struct ShmShrink::Control {
  EventCount event_count;
  alignas(64) std::atomic<std::uint32_t> decided;  // the author's index + 1
};

// Written by its rank alone, and read by others only once it has arrived, or its proposal is decided.
struct ShmShrink::Member {
  alignas(64) std::atomic<std::uint32_t> arrived;
  std::uint64_t region;
  std::bitset<max_ranks> members;
};

std::size_t ShmShrink::bytes(std::size_t members) noexcept { return whole_pages(sizeof(Control) + members * sizeof(Member)); }

ShmShrink::ShmShrink(PeerMonitor& monitor, std::byte* memory, const std::vector<int>& members, std::size_t self)
    : monitor_(monitor),
      control_(reinterpret_cast<Control*>(memory)),
      members_memory_(reinterpret_cast<Member*>(memory + sizeof(Control))),
      members_(members),
      self_(self) {}

bool ShmShrink::arrived(std::size_t member) const noexcept { return members_memory_[member].arrived.load() != 0; }

bool ShmShrink::none_is_missing() const {
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!arrived(member) && monitor_.world().peer_status(members_[member]) == ShmWorld::PeerStatus::alive) return false;
  }
  return true;
}

// A rank that has arrived and died since is left out if that is known.
void ShmShrink::propose(const std::function<std::uint64_t(std::size_t members)>& draw) {
  Member& own = members_memory_[self_];
  own.members.reset();
  for (std::size_t member = 0; member < members_.size(); ++member) {
    const bool here = member == self_ || monitor_.world().peer_status(members_[member]) == ShmWorld::PeerStatus::alive;
    own.members[member] = here && arrived(member);
  }
  own.region = draw(own.members.count());
  std::uint32_t undecided = 0;
  (void)control_->decided.compare_exchange_strong(undecided, static_cast<std::uint32_t>(self_ + 1));
  notify_all(control_->event_count);
}

ShmShrink::Decision ShmShrink::agree(const std::function<std::uint64_t(std::size_t members)>& draw,
                                     const CallContext& context) {
  if (arrived(self_)) fail(TNT_INVALID_ARGUMENT, "this communicator was shrunk before: shrink the one that came of it");
  members_memory_[self_].arrived = 1;
  notify_all(control_->event_count);
  const Deadline deadline(context.timeout);
  const auto decided = [&] { return control_->decided.load() != 0; };
  const auto all_arrived = [&] {
    for (std::size_t member = 0; member < members_.size(); ++member) {
      if (!arrived(member)) return false;
    }
    return true;
  };
  const auto check = [&] {
    if (const auto error = monitor_.world().async_error()) throw Error(*error);
    if (deadline.passed() || none_is_missing()) propose(draw);
  };
  wait_until(
      control_->event_count, monitor_.world().backoff_policy(members_), [&] { return decided() || all_arrived(); }, check);
  if (!decided()) propose(draw);

  const Member& author = members_memory_[control_->decided.load() - 1];
  if (!author.members[self_]) {
    fail(TNT_TIMEOUT,
         "rank {} came to the shrink of its communicator after the deadline of rank {}: the others go on without it",
         members_[self_], members_[control_->decided.load() - 1]);
  }
  Decision decision{{}, author.region};
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (author.members[member]) decision.members.push_back(static_cast<int>(member));
  }
  return decision;
}

}  // namespace tnt
