// Conversions between float16 and float in blocks, with the processor's instructions (F16C, AVX-512) if it has them. The bits
// are those of to_float and to_float16, except for NaN. bfloat16 loops vectorise without this.
#pragma once

#include <cstddef>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// Buffers must not overlap. narrow multiplies first. Call inside with_isa, which sets the denormal mode.
void widen(Unaligned<float>* to, const Unaligned<float16>* from, std::size_t count, Isa isa) noexcept;
void narrow(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count, float factor, Isa isa) noexcept;

}  // namespace tnt
