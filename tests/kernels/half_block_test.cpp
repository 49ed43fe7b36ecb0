// Blocks of float16 on every instruction set: every bit pattern, every rounding limit, and the ends of blocks.
#include "kernels/cpu/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tnt {
namespace {

using Halves = std::vector<Unaligned<float16>>;
using Floats = std::vector<Unaligned<float>>;

class HalfBlockTest : public ::testing::TestWithParam<Isa> {
  void SetUp() override {
    if (!has_isa(GetParam())) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
  }
};

Halves all_patterns() {
  Halves result;
  for (unsigned bits = 0; bits < 65536; ++bits) result.push_back({float16{static_cast<std::uint16_t>(bits)}});
  return result;
}

// Values in the middle between two neighbours and next to it, and random bits.
std::vector<float> awkward_floats() {
  std::vector<float> result;
  constexpr unsigned infinity = 0x7c00;
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const float below = to_float(float16{static_cast<std::uint16_t>(bits)});
    const float above = bits + 1 == infinity ? 65536.0F : to_float(float16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (below + above) / 2;
    for (const float value : {below, std::nextafter(middle, 0.0F), middle, std::nextafter(middle, above)}) {
      result.push_back(value);
      result.push_back(-value);
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i) result.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(), 65519.0F, 65520.0F,
                            std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::quiet_NaN()}) {
    result.push_back(value);
  }
  return result;
}

TEST_P(HalfBlockTest, WidensEveryPatternAsTheDefinitionDoes) {
  const Halves in = all_patterns();
  Floats out(in.size());
  widen(out.data(), in.data(), in.size(), GetParam());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float expected = to_float(in[i].value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[i].value)) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i].value), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

TEST_P(HalfBlockTest, NarrowsAtEveryBorderAsTheDefinitionDoes) {
  Floats in;
  for (const float value : awkward_floats()) in.push_back({value});
  for (const float factor : {1.0F, 0.3F}) {
    Halves out(in.size());
    narrow(out.data(), in.data(), in.size(), factor, GetParam());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const float value = in[i].value * factor;
      const unsigned bits = out[i].value.bits;
      if (std::isnan(value)) {
        ASSERT_GT(bits & 0x7fffU, 0x7c00U) << i;
      } else {
        ASSERT_EQ(bits, to_float16(value).bits) << std::hexfloat << value;
      }
    }
  }
}

TEST_P(HalfBlockTest, WritesNothingBehindTheEnd) {
  const Halves in = all_patterns();
  const Floats floats(50, {1.5F});
  for (std::size_t count = 0; count < 40; ++count) {
    Floats wide(50, {-1.0F});
    widen(wide.data(), in.data() + 0x3c01, count, GetParam());
    Halves half(50, {float16{0xbeef}});
    narrow(half.data(), floats.data(), count, 1.0F, GetParam());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(wide[i].value, i < count ? to_float(in[0x3c01 + i].value) : -1.0F) << count;
      EXPECT_EQ(half[i].value.bits, i < count ? to_float16(1.5F).bits : 0xbeef) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HalfBlockTest, ::testing::Values(Isa::baseline, Isa::avx2, Isa::avx512),
                         [](const auto& info) { return info.param == Isa::avx512 ? "AVX512" : isa_name(info.param); });

}  // namespace
}  // namespace tnt
