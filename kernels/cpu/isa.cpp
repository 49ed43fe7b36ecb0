#include "kernels/cpu/isa.hpp"

namespace tnt {

bool has_isa(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
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
