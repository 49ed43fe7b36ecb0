// The blocks of a buffer that has one for each member, one after another in the order of the members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "comm/call.hpp"

namespace tnt {

// In any unit. Equal blocks allocate nothing.
class Blocks {
 public:
  Blocks(std::size_t members, std::size_t size) : members_(members), size_(size) {}
  // Of these sizes, each multiplied by unit.
  explicit Blocks(std::span<const std::size_t> sizes, std::size_t unit = 1)
      : members_(sizes.size()), begins_(sizes.size() + 1) {
    for (std::size_t member = 0; member < members_; ++member) begins_[member + 1] = begins_[member] + sizes[member] * unit;
  }
  // A block of one member alone.
  [[nodiscard]] static Blocks only(std::size_t member, std::size_t members, std::size_t size) {
    std::vector<std::size_t> sizes(members);
    sizes[member] = size;
    return Blocks(sizes);
  }

  // The same blocks in a unit of which each of theirs has so many: bytes of elements.
  [[nodiscard]] Blocks times(std::size_t unit) const {
    Blocks result = *this;
    result.size_ *= unit;
    for (std::size_t& begin : result.begins_) begin *= unit;
    return result;
  }

  [[nodiscard]] std::size_t begin(std::size_t member) const noexcept {
    return begins_.empty() ? member * size_ : begins_[member];
  }
  [[nodiscard]] std::size_t size(std::size_t member) const noexcept {
    return begins_.empty() ? size_ : begins_[member + 1] - begins_[member];
  }
  [[nodiscard]] std::size_t total() const noexcept { return begin(members_); }
  [[nodiscard]] std::size_t largest() const noexcept {
    std::size_t largest = begins_.empty() ? size_ : 0;
    for (std::size_t member = 0; member + 1 < begins_.size(); ++member) largest = std::max(largest, size(member));
    return largest;
  }
  // How much of the member's block is in its part [first, first + most).
  [[nodiscard]] std::size_t part(std::size_t member, std::size_t first, std::size_t most) const noexcept {
    return first < size(member) ? std::min(most, size(member) - first) : 0;
  }

 private:
  std::size_t members_;
  std::size_t size_ = 0;
  std::vector<std::size_t> begins_;  // and the end of the last; empty for equal blocks
};

// The blocks that a collective has for each of so many members, its uneven ones if it has those; of all_to_all_v, those that
// this rank sends. unit: as above.
[[nodiscard]] inline Blocks blocks_of(const Collective& call, std::size_t members, std::size_t unit = 1) {
  return call.counts.empty() ? Blocks(members, call.count * unit) : Blocks(call.counts, unit);
}

}  // namespace tnt
