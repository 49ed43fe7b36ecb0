// The memory of one communicator in the segment of its node, and its end: the last member that leaves gives it back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/shm/segment.hpp"
#include "comm/shm/world.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// A member holds it as long as anything here uses the memory: the communicator, and its duplicates, which watch its errors.
class ShmRegion : NonCopyable {
 public:
  // Bytes of the members' departures, which lie at the region's end.
  [[nodiscard]] static std::size_t departure_bytes(std::size_t members) noexcept;

  // number: from ShmWorld::allocate(bytes), with bytes zero, of which the last departure_bytes are used here. members: their
  // ranks in the job; self: an index into members.
  ShmRegion(std::shared_ptr<ShmWorld> world, std::uint64_t number, std::size_t bytes, std::vector<int> members,
            std::size_t self);
  // This rank leaves. Where others may outlive a rank, those that have died count as well, and the memory is only freed of its
  // pages then: it is used again if all members have left by themselves.
  ~ShmRegion();

  [[nodiscard]] std::byte* data() const noexcept { return mapping_->data(); }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  void set_scope(ErrorScope scope) noexcept { scope_ = scope; }

 private:
  struct Departures;

  [[nodiscard]] bool some_died_and_all_others_left() const;

  const std::shared_ptr<ShmWorld> world_;
  const std::uint64_t number_;
  const std::size_t bytes_;
  const std::vector<int> members_;
  const std::size_t self_;
  const std::shared_ptr<Mapping> mapping_;
  Departures* const departures_;
  std::atomic<ErrorScope> scope_{ErrorScope::job};
};

}  // namespace tnt
