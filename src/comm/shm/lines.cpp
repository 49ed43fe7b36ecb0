#include "comm/shm/lines.hpp"

#include <algorithm>
#include <cstring>

namespace tnt {

void Lines::write(const void* data, std::size_t bytes, std::uint64_t signature) noexcept {
  ++number_;
  Line* line = message(self_);
  const auto* from = static_cast<const std::byte*>(data);
  std::memcpy(line->content.data(), &signature, sizeof(signature));
  std::size_t at = sizeof(signature);
  for (std::size_t done = 0;; at = 0, ++line) {
    const std::size_t part = std::min(payload - at, bytes - done);
    std::memcpy(line->content.data() + at, from + done, part);
    line->number.store(number_, std::memory_order_release);
    done += part;
    if (done == bytes) return;
  }
}

Lines::Arrival Lines::read(std::size_t member, void* data, std::size_t bytes, std::uint64_t signature) const noexcept {
  const Line* line = message(member);
  if (line->number.load(std::memory_order_acquire) != number_) return Arrival::missing;
  std::uint64_t theirs = 0;
  std::memcpy(&theirs, line->content.data(), sizeof(theirs));
  if (theirs != signature) return Arrival::other;
  auto* to = static_cast<std::byte*>(data);
  std::size_t at = sizeof(signature);
  for (std::size_t done = 0;; at = 0) {
    const std::size_t part = std::min(payload - at, bytes - done);
    std::memcpy(to + done, line->content.data() + at, part);
    done += part;
    if (done == bytes) return Arrival::here;
    if ((++line)->number.load(std::memory_order_acquire) != number_) return Arrival::missing;
  }
}

}  // namespace tnt
