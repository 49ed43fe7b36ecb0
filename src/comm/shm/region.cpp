#include "comm/shm/region.hpp"

#include <utility>

namespace tnt {

struct ShmRegion::Departures {
  alignas(64) std::atomic<std::uint32_t> count;
  // followed by a flag of each member
  [[nodiscard]] std::atomic<bool>& of(std::size_t member) noexcept {
    return reinterpret_cast<std::atomic<bool>*>(this + 1)[member];
  }
};

std::size_t ShmRegion::departure_bytes(std::size_t members) noexcept {
  return whole_pages(sizeof(Departures) + members * sizeof(std::atomic<bool>));
}

ShmRegion::ShmRegion(std::shared_ptr<ShmWorld> world, std::uint64_t number, std::size_t bytes, std::vector<int> members,
                     std::size_t self)
    : world_(std::move(world)),
      number_(number),
      bytes_(bytes),
      members_(std::move(members)),
      self_(self),
      mapping_(world_->segment().map(ShmWorld::offset_of(number), bytes)),
      departures_(reinterpret_cast<Departures*>(mapping_->data() + bytes - departure_bytes(members_.size()))) {}

// Until this rank is counted, the memory has no other owner. The count says to exactly one member that it is the last.
ShmRegion::~ShmRegion() {
  departures_->of(self_).store(true);
  const bool useless = scope_ == ErrorScope::communicator && some_died_and_all_others_left();
  if (departures_->count.fetch_add(1) + 1 == members_.size()) {
    world_->free(number_, bytes_);
  } else if (useless) {  // a member that has died is never counted, so nobody frees it
    (void)world_->segment().discard(ShmWorld::offset_of(number_), bytes_);
  }
}

bool ShmRegion::some_died_and_all_others_left() const {
  bool some_died = false;
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (departures_->of(member).load()) continue;
    if (world_->peer_status(members_[member]) == ShmWorld::PeerStatus::alive) return false;
    some_died = true;
  }
  return some_died;
}

}  // namespace tnt
