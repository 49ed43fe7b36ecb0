#include "kernels/cpu/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tnt {
namespace {

#if defined(__x86_64__)
constexpr std::size_t line = 64;

// Writes whole cache lines; wider stores than 16 bytes gain nothing.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) noexcept {
  for (std::size_t i = 0; i < lines; ++i, to += line, from += line) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t past_border = reinterpret_cast<std::uintptr_t>(to) % line;
  const std::size_t head = std::min(bytes, past_border == 0 ? 0 : line - past_border);
  const std::size_t lines = (bytes - head) / line;
  const std::size_t tail = head + lines * line;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, lines);
  std::memcpy(to + tail, from + tail, bytes - tail);
}
#endif

}  // namespace

void copy(void* to, const void* from, std::size_t bytes, Store store) noexcept {
  if (bytes == 0 || to == from) return;
#if defined(__x86_64__)
  if (store == Store::streaming) return copy_streaming(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
#endif
  (void)store;
  std::memcpy(to, from, bytes);
}

}  // namespace tnt
