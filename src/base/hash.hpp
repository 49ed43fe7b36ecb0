// A hash of a text, equal on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace tnt {

// FNV-1a, 64 bits (G. Fowler, L. C. Noll, K.-P. Vo).
[[nodiscard]] constexpr std::uint64_t hash(std::string_view text) noexcept {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

}  // namespace tnt
