#include "kernels/cpu/half.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tnt {
namespace {

#if defined(__x86_64__)
// The masked forms: GCC 12 warns of undefined registers in the others.
constexpr __mmask16 all = 0xffff;
constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// Both convert whole vectors and return the number of converted elements.
[[gnu::target("avx,f16c")]] std::size_t widen_f16c(Unaligned<float>* to, const Unaligned<float16>* from,
                                                   std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i),
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  return i;
}

[[gnu::target("avx,f16c")]] std::size_t narrow_f16c(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count,
                                                    float factor) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to + i),
        _mm256_cvtps_ph(_mm256_mul_ps(_mm256_loadu_ps(reinterpret_cast<const float*>(from + i)), _mm256_set1_ps(factor)),
                        nearest));
  }
  return i;
}

[[gnu::target("avx512f")]] std::size_t widen_avx512(Unaligned<float>* to, const Unaligned<float16>* from,
                                                    std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(reinterpret_cast<float*>(to + i),
                     _mm512_maskz_cvtph_ps(all, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  }
  return i;
}

[[gnu::target("avx512f")]] std::size_t narrow_avx512(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count,
                                                     float factor) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to + i),
        _mm512_maskz_cvtps_ph(
            all, _mm512_mul_ps(_mm512_loadu_ps(reinterpret_cast<const float*>(from + i)), _mm512_set1_ps(factor)), nearest));
  }
  return i;
}
#endif

}  // namespace

void widen(Unaligned<float>* to, const Unaligned<float16>* from, std::size_t count, Isa isa) noexcept {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (isa == Isa::avx512) i = widen_avx512(to, from, count);
  if (isa == Isa::avx2) i = widen_f16c(to, from, count);
#endif
  (void)isa;
  for (; i < count; ++i) to[i].value = to_float(from[i].value);
}

void narrow(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count, float factor, Isa isa) noexcept {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (isa == Isa::avx512) i = narrow_avx512(to, from, count, factor);
  if (isa == Isa::avx2) i = narrow_f16c(to, from, count, factor);
#endif
  (void)isa;
  for (; i < count; ++i) to[i].value = to_float16(from[i].value * factor);
}

}  // namespace tnt
