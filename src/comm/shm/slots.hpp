// The memory through which members exchange data: two slots for each member, used in turn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnt {

// Larger data is cut into chunks. With two slots, one barrier between writing and reading is enough: a member that writes a
// slot again has passed the barrier of the other slot's chunk, and all members arrived there after they had read this slot.
class Slots {
 public:
  static constexpr std::size_t slot_bytes = std::size_t{256} * 1024;
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t members) noexcept { return members * 2 * slot_bytes; }

  // memory: bytes(members) that all members share.
  explicit Slots(std::byte* memory) noexcept : memory_(memory) {}

  // The member's slot for the chunk that is `ahead` chunks after the current one.
  [[nodiscard]] std::byte* of(std::size_t member, std::size_t ahead = 0) const noexcept {
    return memory_ + (member * 2 + (chunk_ + ahead) % 2) * slot_bytes;
  }
  void advance(std::size_t chunks = 1) noexcept { chunk_ += chunks; }

 private:
  std::byte* memory_;
  std::uint64_t chunk_ = 0;
};

}  // namespace tnt
