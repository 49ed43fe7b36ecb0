// The instruction sets that kernels are compiled for, and the choice at run time. The loops are the same, vectorised with
// different widths. No sum is reordered and nothing is contracted, so the bits are the same (except for NaN, which processors
// do not define).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>

#include "common/non_copyable.hpp"
#endif

namespace tnt {

enum class Isa : std::uint8_t { baseline, avx2, avx512 };

[[nodiscard]] bool has_isa(Isa isa) noexcept;  // of this machine
[[nodiscard]] Isa best_isa() noexcept;         // of this machine
[[nodiscard]] const char* isa_name(Isa isa) noexcept;

// Sets rounding to nearest and keeps denormals during its lifetime. TensorFlow's threads flush denormals to zero. A reduction
// on such a thread must give the same bits as on any other thread (half of float16's exponents become float32 denormals in a
// conversion).
class DefaultFloatMode : NonCopyable {
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

 private:
#if defined(__x86_64__)
  static constexpr unsigned standard = 0x1f80;  // no exception traps
  unsigned before_;
#endif
};

// A sanitizer finds the same in each of them, and takes three times as long to compile all.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TNT_SEVERAL_ISAS 1
template <typename Body>
[[gnu::target("avx2")]] void run_avx2(const Body& body) {
  body();
}
template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void run_avx512(const Body& body) {
  body();
}
#endif

// Calls body compiled for an instruction set: code that is inlined into it is vectorised for that set. body: a lambda that is
// always inlined, with TNT_INLINE_LAMBDA after its parameters.
#define TNT_INLINE_LAMBDA __attribute__((always_inline))
template <typename Body>
void with_isa(Isa isa, const Body& body) {
  const DefaultFloatMode standard;
#ifdef TNT_SEVERAL_ISAS
  if (isa == Isa::avx512) return run_avx512(body);
  if (isa == Isa::avx2) return run_avx2(body);
#endif
  (void)isa;
  body();
}

}  // namespace tnt
