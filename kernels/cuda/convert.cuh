// Element types on the device and their conversions: round to nearest even, denormals kept, as in kernels/cpu/half.hpp. Uses
// the processor's instruction if it has one; the fallback computes the same bits, except for NaN.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace tnt::gpu {

struct Float16 {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};
// 8-bit floats of the Open Compute Project (OFP8): finite values as codes in order, NaN and, for e5m2, infinity above them.
struct Float8E4m3 {
  static constexpr unsigned mantissa = 3;
  static constexpr unsigned bias = 7;
  static constexpr std::uint32_t too_large = 0x43e80001;  // 464 is halfway to what would follow 448, and rounds to 448
  static constexpr std::uint8_t overflow = 0x7f;          // NaN
  std::uint8_t bits;
};
struct Float8E5m2 {
  static constexpr unsigned mantissa = 2;
  static constexpr unsigned bias = 15;
  static constexpr std::uint32_t too_large = 0x47700000;  // 61440, halfway between 57344 and 65536
  static constexpr std::uint8_t overflow = 0x7c;          // infinity
  std::uint8_t bits;
};

template <typename To, typename From>
__device__ __forceinline__ To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

__device__ __forceinline__ float to_float(Bfloat16 x) { return bits_as<float>(std::uint32_t{x.bits} << 16); }

__device__ __forceinline__ Bfloat16 to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  const auto bits = bits_as<std::uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};  // NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
#endif
}

__device__ __forceinline__ float to_float(Float16 x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
#else
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x8000U) << 16;
  const std::uint32_t magnitude = (std::uint32_t{x.bits} & 0x7fffU) << 13;
  if (magnitude >= 0x0f800000U) return bits_as<float>(sign | 0x7f800000U | magnitude);  // infinity, NaN
  // the multiplication changes the bias of the exponent and normalises denormals
  return bits_as<float>(sign | bits_as<std::uint32_t>(bits_as<float>(magnitude) * 0x1p112F));
#endif
}

__device__ __forceinline__ Float16 to_float16(float x) {
#if defined(__CUDA_ARCH__)
  Float16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
#else
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000U) {
    result = 0x7e00U;
  } else if (magnitude >= 0x47800000U) {
    result = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {
    result = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else {  // the low bits of the sum are the denormal, rounded
    result = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
  }
  return {static_cast<std::uint16_t>(sign | result)};
#endif
}

// Not the processor's instruction, which makes the greatest finite value of what is too large: loss scaling would not see it.
template <typename T>
__device__ __forceinline__ T to_float8(float x) {
  constexpr unsigned shift = 23 - T::mantissa;
  constexpr std::uint32_t smallest_normal = (128 - T::bias) << 23;
  constexpr std::uint32_t anchor = (151 - T::bias - T::mantissa) << 23;  // a float whose last bit is the smallest denormal
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000U) {
    result = 0x7fU;
  } else if (magnitude >= T::too_large) {
    result = T::overflow;
  } else if (magnitude >= smallest_normal) {
    const std::uint32_t below_half = (1U << (shift - 1)) - 1;
    result = (magnitude - ((127 - T::bias) << 23) + below_half + ((magnitude >> shift) & 1U)) >> shift;
  } else {  // the low bits of the sum are the denormal, rounded
    result = bits_as<std::uint32_t>(bits_as<float>(magnitude) + bits_as<float>(anchor)) - anchor;
  }
  return {static_cast<std::uint8_t>((bits >> 24 & 0x80U) | result)};
}

template <typename T>
__device__ __forceinline__ float from_float8(T x) {
  constexpr unsigned shift = 23 - T::mantissa;
  constexpr std::uint32_t factor = (254 - T::bias) << 23;  // 2^(127 - bias)
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x80U) << 24;
  const std::uint32_t magnitude = x.bits & 0x7fU;
  if (magnitude >= T::overflow) return bits_as<float>(sign | 0x7f800000U | (magnitude << shift & 0x7fffffU));
  // the multiplication changes the bias of the exponent and normalises denormals
  return bits_as<float>(sign | bits_as<std::uint32_t>(bits_as<float>(magnitude << shift) * bits_as<float>(factor)));
}

// The type in which values are computed, and the conversions to and from it: float for 16 and 8 bits, 64 bits for integers.
template <typename T>
struct Accumulator {
  using type = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, std::uint64_t>, std::int64_t, T>;
  static __device__ __forceinline__ type load(T x) { return static_cast<type>(x); }
  static __device__ __forceinline__ T store(type x) { return static_cast<T>(x); }
};
template <>
struct Accumulator<Float16> {
  using type = float;
  static __device__ __forceinline__ float load(Float16 x) { return to_float(x); }
  static __device__ __forceinline__ Float16 store(float x) { return to_float16(x); }
};
template <>
struct Accumulator<Bfloat16> {
  using type = float;
  static __device__ __forceinline__ float load(Bfloat16 x) { return to_float(x); }
  static __device__ __forceinline__ Bfloat16 store(float x) { return to_bfloat16(x); }
};
template <typename T>
struct Float8Accumulator {
  using type = float;
  static __device__ __forceinline__ float load(T x) { return from_float8(x); }
  static __device__ __forceinline__ T store(float x) { return to_float8<T>(x); }
};
template <>
struct Accumulator<Float8E4m3> : Float8Accumulator<Float8E4m3> {};
template <>
struct Accumulator<Float8E5m2> : Float8Accumulator<Float8E5m2> {};

template <typename T>
using AccumulatorType = typename Accumulator<T>::type;
template <typename T>
inline constexpr bool is_floating = std::is_floating_point_v<AccumulatorType<T>>;

// Integers wrap, which is defined for unsigned types only.
template <typename A>
__device__ __forceinline__ A wrapping_add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

// Integers are multiplied in double and saturate at 64 bits.
template <typename A>
__device__ __forceinline__ A saturate(double x) {
  constexpr double low = std::is_signed_v<A> ? -0x1p63 : 0;
  constexpr double high = std::is_signed_v<A> ? 0x1p63 - 1024 : 0x1p64 - 2048;  // the greatest double below 2^63 or 2^64
  return static_cast<A>(x < low ? low : high < x ? high : x);
}

// scale * x, as in tnt::scale of kernels/cpu/pack.hpp. A scale of 1 within a type keeps the bits.
template <typename To, typename From>
struct Scale {
  using A = std::conditional_t<std::is_same_v<AccumulatorType<From>, float>, float, double>;

  A factor;
  bool unchanged;

  explicit __device__ Scale(double scale = 1.0)
      : factor(static_cast<A>(scale)), unchanged(std::is_same_v<To, From> && scale == 1.0) {}

  __device__ __forceinline__ To operator()(From x) const {
    if constexpr (std::is_same_v<To, From>) {
      if (unchanged) return x;
    }
    const A scaled = static_cast<A>(Accumulator<From>::load(x)) * factor;
    if constexpr (std::is_integral_v<To>) {
      return Accumulator<To>::store(saturate<AccumulatorType<To>>(scaled));
    } else {
      return Accumulator<To>::store(static_cast<AccumulatorType<To>>(scaled));
    }
  }
};

}  // namespace tnt::gpu
