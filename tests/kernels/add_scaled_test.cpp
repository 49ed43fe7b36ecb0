// The weighted sum of two buffers: to the bits of two ranks that pack and reduce them.
#include "kernels/cpu/add_scaled.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/pack.hpp"
#include "kernels/cpu/reduce.hpp"
#include "support/array.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::Array;
using testing::disorderly_values;

bool is_float(tnt_dtype_t dtype) {
  return dtype == TNT_FLOAT32 || dtype == TNT_FLOAT64 || dtype == TNT_FLOAT16 || dtype == TNT_BFLOAT16;
}

// What two ranks do.
Array packed_and_reduced(const Array& a, double scale_a, const Array& b, double scale_b) {
  std::array<Array, 2> slots{Array(a.dtype(), a.count()), Array(a.dtype(), a.count())};
  const Piece piece_a{.in = a.data(), .out = nullptr, .count = a.count(), .scale = scale_a};
  const Piece piece_b{.in = b.data(), .out = nullptr, .count = b.count(), .scale = scale_b};
  Run({&piece_a, 1}, a.dtype()).pack(0, a.count(), slots[0].data());
  Run({&piece_b, 1}, a.dtype()).pack(0, a.count(), slots[1].data());
  Array result(a.dtype(), a.count());
  reduce(result.data(), std::array<const void*, 2>{slots[0].data(), slots[1].data()}, a.count(), a.dtype(), tree_sum);
  return result;
}

TEST(AddScaled, IsWhatTwoRanksGive) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::vector<double> scales = is_float(dtype) ? std::vector{1.0, 0.0, 0.3, -7.0} : std::vector{1.0, 0.0};
    for (const std::size_t count : {0U, 1U, 37U, 4096U, 5003U}) {
      const Array a = disorderly_values(dtype, count, 1);
      const Array b = disorderly_values(dtype, count, 2);
      for (const double scale_a : scales) {
        for (const double scale_b : scales) {
          const Array expected = packed_and_reduced(a, scale_a, b, scale_b);
          for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
            if (!has_isa(isa)) continue;
            Array out(dtype, count);
            add_scaled(out.data(), a.data(), scale_a, b.data(), scale_b, count, dtype, isa);
            ASSERT_EQ(out, expected) << dtype_name(dtype) << ", " << scale_a << ", " << scale_b << ", " << isa_name(isa);
          }
          Array over_a = a;
          add_scaled(over_a.data(), over_a.data(), scale_a, b.data(), scale_b, count, dtype);
          ASSERT_EQ(over_a, expected) << dtype_name(dtype) << " over a";
          Array over_b = b;
          add_scaled(over_b.data(), a.data(), scale_a, over_b.data(), scale_b, count, dtype);
          ASSERT_EQ(over_b, expected) << dtype_name(dtype) << " over b";
        }
      }
    }
  }
}

// Each product is rounded before it is added, so nothing is contracted to a fused multiply-add.
TEST(AddScaled, RoundsEachProduct) {
  constexpr std::size_t count = 2000;
  const Array a = disorderly_values(TNT_FLOAT32, count, 3);
  const Array b = disorderly_values(TNT_FLOAT32, count, 4);
  Array out(TNT_FLOAT32, count);
  add_scaled(out.data(), a.data(), 0.1, b.data(), 0.7, count, TNT_FLOAT32);
  bool fused_differs = false;
  for (std::size_t i = 0; i < count; ++i) {
    const volatile float first = static_cast<float>(a.get(i)) * 0.1F;
    const volatile float second = static_cast<float>(b.get(i)) * 0.7F;
    ASSERT_EQ(static_cast<float>(out.get(i)), first + second) << i;
    fused_differs |= std::fma(static_cast<float>(b.get(i)), 0.7F, first) != first + second;
  }
  EXPECT_TRUE(fused_differs) << "the values do not tell one from the other";
}

TEST(AddScaled, AScaleOfZeroContributesZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 3> a{nan, std::numeric_limits<float>::infinity(), -1.0F};
  const std::array<float, 3> b{1.0F, 2.0F, 3.0F};
  std::array<float, 3> out{};
  add_scaled(out.data(), a.data(), 0.0, b.data(), 1.0, 3, TNT_FLOAT32);
  EXPECT_EQ(out, b);
  add_scaled(out.data(), nullptr, 0.0, b.data(), 2.0, 3, TNT_FLOAT32);
  EXPECT_EQ(out, (std::array<float, 3>{2.0F, 4.0F, 6.0F}));
  add_scaled(out.data(), nullptr, 0.0, nullptr, 0.0, 3, TNT_FLOAT32);
  EXPECT_EQ(out, (std::array<float, 3>{}));
}

}  // namespace
}  // namespace tnt
