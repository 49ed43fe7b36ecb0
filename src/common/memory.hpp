// Sizes as multiples of an alignment, and places in memory.
#pragma once

#include <cstddef>

namespace tnt {

inline constexpr std::size_t cache_line_bytes = 64;

[[nodiscard]] constexpr std::size_t divided_up(std::size_t value, std::size_t unit) noexcept {
  return (value + unit - 1) / unit;
}
// The smallest multiple of `unit` that is not below the value.
[[nodiscard]] constexpr std::size_t rounded_up(std::size_t value, std::size_t unit) noexcept {
  return divided_up(value, unit) * unit;
}

[[nodiscard]] inline const std::byte* at(const void* memory, std::size_t bytes) noexcept {
  return static_cast<const std::byte*>(memory) + bytes;
}
[[nodiscard]] inline std::byte* at(void* memory, std::size_t bytes) noexcept { return static_cast<std::byte*>(memory) + bytes; }

}  // namespace tnt
