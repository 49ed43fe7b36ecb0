#include "kernels/cpu/isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tnt {

#if defined(__x86_64__)
namespace {

// Some compilers do not know "f16c" in __builtin_cpu_supports.
bool has_f16c() noexcept {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

bool has_isa(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") != 0 && has_f16c();
  if (isa == Isa::avx512) {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
#endif
  return isa == Isa::baseline;
}

Isa best_isa() noexcept {
  static const Isa best = has_isa(Isa::avx512) ? Isa::avx512 : has_isa(Isa::avx2) ? Isa::avx2 : Isa::baseline;
  return best;
}

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "AVX2";
    case Isa::avx512: return "AVX-512";
  }
  return "unknown";
}

}  // namespace tnt
