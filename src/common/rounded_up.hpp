// Sizes as multiples of an alignment.
#pragma once

#include <cstddef>

namespace tnt {

// The smallest multiple of `unit` that is not below the value.
[[nodiscard]] constexpr std::size_t rounded_up(std::size_t value, std::size_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tnt
