// Elements of every type as double, for the checks. The conversions are independent of the library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// Rounds to nearest even with this many bits of mantissa (including the leading one) and this minimum exponent.
[[nodiscard]] inline double round_to(double x, int bits, int min_exponent, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // x = m * 2^exponent, 0.5 <= |m| < 1
  const double unit = std::ldexp(1.0, std::max(exponent, min_exponent + 1) - bits);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

[[nodiscard]] inline bool is_floating(tnt_dtype_t dtype) {
  return dtype == TNT_FLOAT32 || dtype == TNT_FLOAT64 || dtype == TNT_FLOAT16 || dtype == TNT_BFLOAT16;
}

// The nearest value of the type.
[[nodiscard]] inline double rounded(double x, tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_FLOAT32: return static_cast<double>(static_cast<float>(x));
    case TNT_FLOAT16: return round_to(x, 11, -14, 65504.0);
    case TNT_BFLOAT16: return round_to(x, 8, -126, 0x1.fep127);
    default: return x;
  }
}

// The distance from x to the next value of the type (one ULP).
[[nodiscard]] inline double unit_of(double x, tnt_dtype_t dtype) {
  int bits = 53;
  int min_exponent = -1022;
  if (dtype == TNT_FLOAT32) bits = 24, min_exponent = -126;
  if (dtype == TNT_FLOAT16) bits = 11, min_exponent = -14;
  if (dtype == TNT_BFLOAT16) bits = 8, min_exponent = -126;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(x == 0 ? min_exponent + 1 : exponent, min_exponent + 1) - bits);
}

[[nodiscard]] inline double half_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const double mantissa = bits & 0x3ffU;
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(mantissa + 1024, exponent - 25);
}

[[nodiscard]] inline std::uint16_t half_bits(double x) {  // x: a value of float16
  const std::uint16_t sign = std::signbit(x) ? 0x8000U : 0;
  const double magnitude = std::abs(x);
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(magnitude, 24)));
  int exponent = 0;
  const double mantissa = std::frexp(magnitude, &exponent);
  const auto low = static_cast<std::uint16_t>(std::ldexp(mantissa, 11) - 1024);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((exponent + 14) << 10) | low);
}

[[nodiscard]] inline double load(const void* buffer, std::size_t index, tnt_dtype_t dtype) {
  const auto* bytes = static_cast<const std::byte*>(buffer) + index * tnt_dtype_size(dtype);
  const auto as = [&]<typename T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  };
  switch (dtype) {
    case TNT_FLOAT32: return static_cast<double>(as(float{}));
    case TNT_FLOAT64: return as(double{});
    case TNT_FLOAT16: return half_value(as(std::uint16_t{}));
    case TNT_BFLOAT16: return static_cast<double>(std::bit_cast<float>(std::uint32_t{as(std::uint16_t{})} << 16));
    case TNT_INT8: return as(std::int8_t{});
    case TNT_UINT8: return as(std::uint8_t{});
    case TNT_INT32: return as(std::int32_t{});
    case TNT_INT64: return static_cast<double>(as(std::int64_t{}));
    case TNT_UINT32: return as(std::uint32_t{});
    case TNT_UINT64: return static_cast<double>(as(std::uint64_t{}));
    default: break;
  }
  return 0;
}

// value: a value of the type.
inline void store(void* buffer, std::size_t index, tnt_dtype_t dtype, double value) {
  auto* bytes = static_cast<std::byte*>(buffer) + index * tnt_dtype_size(dtype);
  const auto put = [&]<typename T>(T typed) { std::memcpy(bytes, &typed, sizeof(T)); };
  switch (dtype) {
    case TNT_FLOAT32: return put(static_cast<float>(value));
    case TNT_FLOAT64: return put(value);
    case TNT_FLOAT16: return put(half_bits(value));
    case TNT_BFLOAT16: return put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case TNT_INT8: return put(static_cast<std::int8_t>(value));
    case TNT_UINT8: return put(static_cast<std::uint8_t>(value));
    case TNT_INT32: return put(static_cast<std::int32_t>(value));
    case TNT_INT64: return put(static_cast<std::int64_t>(value));
    case TNT_UINT32: return put(static_cast<std::uint32_t>(value));
    case TNT_UINT64: return put(static_cast<std::uint64_t>(value));
    default: break;
  }
}

}  // namespace tnt::bench
