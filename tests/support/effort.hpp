// How much a test does: less under a sanitizer, which makes everything some ten times slower.
#pragma once

namespace tnt::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

[[nodiscard]] constexpr int effort(int full, int under_sanitizer) { return sanitized ? under_sanitizer : full; }

}  // namespace tnt::testing
