// The instruction sets that kernels are compiled for, and the choice among them at run time. The same loops, vectorised more or
// less widely: no sum is reordered and nothing is contracted, so every one gives the same bits (but for those of a NaN, which
// processors do not promise).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tnt {

enum class Isa : std::uint8_t { baseline, avx2, avx512 };

[[nodiscard]] bool has_isa(Isa isa) noexcept;  // this machine
[[nodiscard]] Isa best_isa() noexcept;         // of this machine
[[nodiscard]] const char* isa_name(Isa isa) noexcept;

// Rounding to nearest, denormals kept, while it lives: TensorFlow's threads flush denormals to zero, and what a thread that
// waits for a sum reduces must have the bits that any other would give it (half of float16's exponents are denormals of float32
// on their way).
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() noexcept : before_(_mm_getcsr()) {
    if (before_ != standard) _mm_setcsr(standard);
  }
  ~DefaultFloatMode() {
    if (before_ != standard) _mm_setcsr(before_);
  }
#else
  DefaultFloatMode() noexcept = default;
  ~DefaultFloatMode() = default;
#endif
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned standard = 0x1f80;  // no exception traps
  unsigned before_;
#endif
};

#if defined(__x86_64__)
template <typename Body>
[[gnu::target("avx2")]] void run_avx2(const Body& body) {
  body();
}
template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void run_avx512(const Body& body) {
  body();
}
#endif

// Calls body compiled for the instruction set: what is inlined into it is vectorised for that. body: a lambda that is always
// inlined, TNT_INLINE_LAMBDA behind its parameters.
#define TNT_INLINE_LAMBDA __attribute__((always_inline))
template <typename Body>
void with_isa(Isa isa, const Body& body) {
  const DefaultFloatMode standard;
#if defined(__x86_64__)
  if (isa == Isa::avx512) return run_avx512(body);
  if (isa == Isa::avx2) return run_avx2(body);
#endif
  (void)isa;
  body();
}

}  // namespace tnt
