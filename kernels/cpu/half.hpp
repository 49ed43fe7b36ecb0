// Conversions between float and float16 or bfloat16: round to nearest even, denormals and NaN kept. Loops over them vectorise.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "common/dtype.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

[[nodiscard]] inline float to_float(bfloat16 x) noexcept { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

[[nodiscard]] inline bfloat16 to_bfloat16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;  // rounding could carry a NaN to infinity
  return {static_cast<std::uint16_t>(nan ? quiet : rounded)};
}

// A multiplication changes the bias of the exponent and normalises denormals (F. Giesen, "float->half variants", 2012: the
// hardware's rounding does the work).
[[nodiscard]] inline float to_float(float16 x) noexcept {
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x8000U) << 16;
  const auto magnitude = static_cast<std::int32_t>(std::uint32_t{x.bits} & 0x7fffU);
  const auto scaled = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  const std::int32_t special = (magnitude << 13) | 0x7f800000;  // infinity and NaN
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(magnitude >= 0x7c00 ? special : scaled));
}

// Uses signed comparisons and selections, which every vector instruction set has.
[[nodiscard]] inline float16 to_float16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto magnitude = static_cast<std::int32_t>(bits & 0x7fffffffU);
  // adding 0.5 moves the denormal's mantissa, rounded, to the low bits
  const std::int32_t denormal = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000;
  const std::int32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const std::int32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;  // NaN, else infinity
  const std::int32_t finite = magnitude < 0x38800000 ? denormal : normal;
  const std::int32_t result = magnitude >= 0x47800000 ? special : finite;
  return {static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | static_cast<std::uint32_t>(result))};
}

// An element of an array that may be unaligned, as users' buffers may be. Unlike a memcpy for each element, it vectorises like
// a plain access.
template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

// The type in which a reduction accumulates, and the conversions to and from it.
template <typename T>
struct Accumulator {
  using type = T;
  [[nodiscard]] static type load(T x) noexcept { return x; }
  [[nodiscard]] static T store(type x) noexcept { return x; }
};
template <>
struct Accumulator<float16> {
  using type = float;
  [[nodiscard]] static type load(float16 x) noexcept { return to_float(x); }
  [[nodiscard]] static float16 store(type x) noexcept { return to_float16(x); }
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
  [[nodiscard]] static type load(bfloat16 x) noexcept { return to_float(x); }
  [[nodiscard]] static bfloat16 store(type x) noexcept { return to_bfloat16(x); }
};
// Small integers accumulate in 64 bits, so that an average does not wrap.
template <std::integral T>
requires(sizeof(T) < sizeof(std::int64_t)) struct Accumulator<T> {
  using type = std::int64_t;
  [[nodiscard]] static type load(T x) noexcept { return x; }
  [[nodiscard]] static T store(type x) noexcept { return static_cast<T>(x); }
};

// Conversions between float16 and float in blocks, with the processor's instructions (F16C, AVX-512) if it has them. The bits
// are those of to_float and to_float16, except for NaN. bfloat16 loops vectorise without this.
//
// Buffers must not overlap. narrow multiplies first. Call inside with_isa, which sets the denormal mode.
void widen(Unaligned<float>* to, const Unaligned<float16>* from, std::size_t count, Isa isa) noexcept;
void narrow(Unaligned<float16>* to, const Unaligned<float>* from, std::size_t count, float factor, Isa isa) noexcept;

}  // namespace tnt
