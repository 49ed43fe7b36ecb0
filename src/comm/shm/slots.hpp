// The memory through which the members of a communicator see each other's data: two slots for each, used in turn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tnt {

// What is bigger than a slot goes in chunks. Two slots are enough for one meeting of all members between writing and reading:
// who writes a slot again has been to the meeting of the other slot's chunk, to which all came after they had read this one.
class Slots {
 public:
  static constexpr std::size_t slot_bytes = std::size_t{256} * 1024;
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t members) noexcept { return members * 2 * slot_bytes; }

  // memory: bytes(members) that all members share.
  explicit Slots(std::byte* memory) noexcept : memory_(memory) {}

  // The member's slot of the chunk that is `ahead` after the next one to be finished.
  [[nodiscard]] std::byte* of(std::size_t member, std::size_t ahead = 0) const noexcept {
    return memory_ + (member * 2 + (chunk_ + ahead) % 2) * slot_bytes;
  }
  void advance(std::size_t chunks = 1) noexcept { chunk_ += chunks; }

 private:
  std::byte* memory_;
  std::uint64_t chunk_ = 0;
};

}  // namespace tnt
