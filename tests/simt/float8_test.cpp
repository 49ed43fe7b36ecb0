// 8-bit floats, in which gradients travel: conversions against a table of all codes, and the kernels that move and sum them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/bucket_layout.hpp"
#include "kernels/cuda/convert.cuh"
#include "simt/kernel_runs.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

// A code's value by the format's definition.
double value_of(tnt_dtype_t dtype, unsigned code) {
  const bool e4m3 = dtype == TNT_FLOAT8_E4M3;
  const int bits = e4m3 ? 3 : 2;
  const int bias = e4m3 ? 7 : 15;
  const unsigned magnitude = code & 0x7fU;
  const int exponent = static_cast<int>(magnitude >> bits);
  const int mantissa = static_cast<int>(magnitude & ((1U << bits) - 1));
  const double sign = (code & 0x80U) != 0 ? -1.0 : 1.0;
  if (e4m3 ? magnitude == 0x7f : exponent == 31 && mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
  if (!e4m3 && exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - bits);
  return sign * std::ldexp((1 << bits) + mantissa, exponent - bias - bits);
}

// The nearest code to a value, the even one of two, by looking at all of them.
unsigned code_of(tnt_dtype_t dtype, double x) {
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7fU;
  const bool e4m3 = dtype == TNT_FLOAT8_E4M3;
  const unsigned last = e4m3 ? 0x7e : 0x7b;
  const double half = (value_of(dtype, last) - value_of(dtype, last - 1)) / 2;
  const double end = value_of(dtype, last) + half;
  if (std::abs(x) > end || (!e4m3 && std::abs(x) == end)) return sign | (e4m3 ? 0x7fU : 0x7cU);
  unsigned best = 0;
  for (unsigned code = 0; code <= last; ++code) {
    const double away = std::abs(value_of(dtype, code) - std::abs(x));
    const double least = std::abs(value_of(dtype, best) - std::abs(x));
    if (away < least || (away == least && code % 2 == 0)) best = code;
  }
  return sign | best;
}

unsigned stored(tnt_dtype_t dtype, float x) {
  return dtype == TNT_FLOAT8_E4M3 ? to_float8<Float8E4m3>(x).bits : to_float8<Float8E5m2>(x).bits;
}
float loaded(tnt_dtype_t dtype, unsigned code) {
  const auto bits = static_cast<std::uint8_t>(code);
  return dtype == TNT_FLOAT8_E4M3 ? from_float8(Float8E4m3{bits}) : from_float8(Float8E5m2{bits});
}
bool is_same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

class Float8 : public ::testing::TestWithParam<tnt_dtype_t> {};

TEST_P(Float8, EachCodeHasItsValue) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_TRUE(is_same(loaded(GetParam(), code), value_of(GetParam(), code))) << code << ": " << loaded(GetParam(), code);
    if (std::isnan(value_of(GetParam(), code))) continue;
    EXPECT_EQ(stored(GetParam(), loaded(GetParam(), code)), code);
  }
}

// Everything between two codes: halfway, and the floats beside it.
TEST_P(Float8, RoundsToTheNearestEvenCode) {
  for (unsigned code = 0; code < 0x7f; ++code) {
    const auto low = static_cast<float>(value_of(GetParam(), code));
    const auto high = static_cast<float>(value_of(GetParam(), code + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const float half = low + (high - low) / 2;
    for (const float x : {half, std::nextafter(half, low), std::nextafter(half, high), std::nextafter(low, high)}) {
      EXPECT_EQ(stored(GetParam(), x), code_of(GetParam(), static_cast<double>(x))) << x;
      EXPECT_EQ(stored(GetParam(), -x), code_of(GetParam(), static_cast<double>(-x))) << -x;
    }
  }
}

TEST_P(Float8, WhatIsTooLargeIsSeen) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {464.0F, std::nextafter(464.0F, infinity), 57344.0F, std::nextafter(61440.0F, 0.0F), 61440.0F, 1e30F,
                        infinity, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::denorm_min()}) {
    for (const float y : {x, -x}) EXPECT_EQ(stored(GetParam(), y), code_of(GetParam(), static_cast<double>(y))) << y;
  }
  EXPECT_FALSE(std::isfinite(loaded(GetParam(), stored(GetParam(), infinity))));
}

TEST_P(Float8, AnyFloatIsRounded) {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    ASSERT_EQ(stored(GetParam(), x), code_of(GetParam(), static_cast<double>(x))) << x;
  }
}

// Ranks' slices are summed in float32 and rounded once.
TEST_P(Float8, SumsAreRoundedOnce) {
  constexpr std::size_t count = 5'003;
  constexpr int n = 5;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<std::vector<std::uint8_t>> terms(n, std::vector<std::uint8_t>(count));
  std::array<const void*, n> sources{};
  for (std::size_t i = 0; i < n; ++i) {
    for (std::uint8_t& code : terms[i]) code = static_cast<std::uint8_t>(stored(GetParam(), normal(random)));
    sources[i] = terms[i].data();
  }
  std::vector<std::uint8_t> sums(count);
  run_reduce(sums.data(), sources.data(), n, count, GetParam());
  for (std::size_t k = 0; k < count; ++k) {
    double sum = 0.0;  // exact, as it is in float32: few bits in a small range
    for (const std::vector<std::uint8_t>& term : terms) sum += value_of(GetParam(), term[k]);
    ASSERT_EQ(value_of(GetParam(), sums[k]), value_of(GetParam(), code_of(GetParam(), sum))) << k;
  }
}

// float32 gradients, scaled, in a bucket of 8 bits and back; and added to main gradients.
TEST_P(Float8, BucketsArePackedUnpackedAndAccumulated) {
  const std::vector<TensorShape> shapes{{1, TNT_FLOAT32}, {4'099, TNT_FLOAT32}, {130, TNT_FLOAT64}, {70'001, TNT_FLOAT32}};
  const BucketLayout layout = make_layout(shapes, GetParam());
  std::vector<std::uint8_t> bucket(layout.count, 0xaa);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<double>> wide(shapes.size());
  std::vector<std::vector<float>> narrow(shapes.size());
  std::vector<TensorArgument> arguments;
  constexpr double factor = 8.0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const bool is_wide = shapes[i].dtype == TNT_FLOAT64;
    for (std::size_t k = 0; k < shapes[i].count; ++k) {
      const float x = normal(random);
      is_wide ? wide[i].push_back(x) : narrow[i].push_back(x);
    }
    void* const data = is_wide ? static_cast<void*>(wide[i].data()) : narrow[i].data();
    arguments.push_back({.in = data, .out = data, .scale = factor});
  }
  const std::vector<std::vector<double>> wide_before = wide;
  const std::vector<std::vector<float>> narrow_before = narrow;
  const BucketLaunch launch = layout.launch(layout.tiles.data(), arguments.data(), bucket.data());
  run_pack(launch);
  run_unpack(launch);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t k = 0; k < shapes[i].count; ++k) {
      const bool is_wide = shapes[i].dtype == TNT_FLOAT64;
      const double before = is_wide ? wide_before[i][k] : static_cast<double>(narrow_before[i][k]);
      const double after = is_wide ? wide[i][k] : static_cast<double>(narrow[i][k]);
      ASSERT_EQ(after, value_of(GetParam(), code_of(GetParam(), factor * before))) << "tensor " << i << ", element " << k;
    }
  }
  const std::vector<float> results = narrow[3];
  arguments[2].out = nullptr;  // main gradients are float32
  run_accumulate(launch);
  for (std::size_t k = 0; k < results.size(); ++k) ASSERT_EQ(narrow[3][k], results[k] + results[k]) << k;
}

INSTANTIATE_TEST_SUITE_P(Formats, Float8, ::testing::Values(TNT_FLOAT8_E4M3, TNT_FLOAT8_E5M2),
                         [](const auto& one) { return one.param == TNT_FLOAT8_E4M3 ? "E4M3" : "E5M2"; });

}  // namespace
}  // namespace tnt::gpu
