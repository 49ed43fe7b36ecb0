// Conversions of 16-bit floats against their definition, for all bit patterns and at every rounding limit.
#include "kernels/cpu/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "support/half_reference.hpp"

namespace tnt {
namespace {

using testing::HalfFormat;

struct Float16 {
  static const HalfFormat& format() { return HalfFormat::float16(); }
  static float widen(std::uint16_t bits) { return to_float(float16{bits}); }
  static std::uint16_t narrow(float value) { return to_float16(value).bits; }
};
struct Bfloat16 {
  static const HalfFormat& format() { return HalfFormat::bfloat16(); }
  static float widen(std::uint16_t bits) { return to_float(bfloat16{bits}); }
  static std::uint16_t narrow(float value) { return to_bfloat16(value).bits; }
};

template <typename Half>
class HalfTest : public ::testing::Test {};
using Formats = ::testing::Types<Float16, Bfloat16>;
TYPED_TEST_SUITE(HalfTest, Formats);

template <typename Half>
void expect_nearest(float value) {
  for (const float signed_value : {value, -value}) {
    ASSERT_EQ(Half::narrow(signed_value), Half::format().encode(signed_value)) << std::hexfloat << signed_value;
  }
}

TYPED_TEST(HalfTest, EveryPatternWidensToItsValueAndComesBack) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float wide = TypeParam::widen(bits);
    if (TypeParam::format().is_nan(bits)) {
      ASSERT_TRUE(std::isnan(wide)) << i;
      ASSERT_TRUE(TypeParam::format().is_nan(TypeParam::narrow(wide))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(wide), TypeParam::format().decode(bits)) << i;
      ASSERT_EQ(std::signbit(wide), (bits & 0x8000U) != 0) << i;
      ASSERT_EQ(TypeParam::narrow(wide), bits) << i;
    }
  }
}

TYPED_TEST(HalfTest, RoundsToNearestAtEveryBorder) {
  for (unsigned i = 0; i < TypeParam::format().infinity(); ++i) {
    const float below = TypeParam::widen(static_cast<std::uint16_t>(i));
    const double above = i + 1U == TypeParam::format().infinity()
                             ? std::ldexp(1.0, std::ilogb(static_cast<double>(below)) + 1)
                             : static_cast<double>(TypeParam::widen(static_cast<std::uint16_t>(i + 1)));
    const auto middle = static_cast<float>((static_cast<double>(below) + above) / 2);
    expect_nearest<TypeParam>(middle);
    expect_nearest<TypeParam>(std::nextafter(middle, 0.0F));
    expect_nearest<TypeParam>(std::nextafter(middle, std::numeric_limits<float>::infinity()));
  }
}

TYPED_TEST(HalfTest, RoundsAnyFloatToNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7fffffffU);
    if (!std::isnan(value)) expect_nearest<TypeParam>(value);
  }
}

TYPED_TEST(HalfTest, KeepsInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  expect_nearest<TypeParam>(infinity);
  expect_nearest<TypeParam>(std::numeric_limits<float>::max());
  expect_nearest<TypeParam>(std::numeric_limits<float>::denorm_min());
  EXPECT_TRUE(TypeParam::format().is_nan(TypeParam::narrow(std::numeric_limits<float>::quiet_NaN())));
  const auto lowest_payload = std::bit_cast<float>(0x7f800001U);  // rounding would turn it into infinity
  EXPECT_TRUE(TypeParam::format().is_nan(TypeParam::narrow(lowest_payload)));
  EXPECT_TRUE(TypeParam::format().is_nan(TypeParam::narrow(-lowest_payload)));
}

}  // namespace
}  // namespace tnt
