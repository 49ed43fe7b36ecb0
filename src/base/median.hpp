// The median of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tnt {

// The upper one of the two in the middle of an even number. There is at least one value.
template <typename T>
[[nodiscard]] T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tnt
