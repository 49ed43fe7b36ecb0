// Blocks of float16 to and from float by the processor's own conversions (F16C, AVX-512), where it has them: the bits of
// to_float and to_float16, a NaN's aside. bfloat16 needs none of this: its loops vectorise.
#pragma once

#include <cstddef>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// Buffers must not overlap. narrow multiplies first. Inside with_isa, which sees to the denormals.
void widen(Unaligned<float>* to, const Unaligned<float16>* from, std::size_t count, Isa isa) noexcept;
void narrow(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count, float factor, Isa isa) noexcept;

}  // namespace tnt
