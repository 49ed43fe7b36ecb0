// How much a test does: less under a sanitizer, which makes everything about ten times slower.
#pragma once

#include <initializer_list>
#include <vector>

namespace tnt::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

[[nodiscard]] constexpr int effort(int full, int under_sanitizer) { return sanitized ? under_sanitizer : full; }

// The parameters of a test. Under a sanitizer: only enough of them to reach every code path.
template <typename T>
[[nodiscard]] std::vector<T> some_of(std::initializer_list<T> all, std::initializer_list<T> under_sanitizer) {
  return sanitized ? under_sanitizer : all;
}

}  // namespace tnt::testing
