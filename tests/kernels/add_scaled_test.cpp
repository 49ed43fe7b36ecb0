// The weighted sum of n buffers: the same bits as n ranks that pack and reduce them.

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

// What n ranks compute.
Array packed_and_reduced(const std::vector<Array>& terms, const std::vector<double>& scales) {
  std::vector<Array> slots;
  std::vector<const void*> sources;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const Array& term = terms[k];
    const TensorView view{.in = term.data(), .out = nullptr, .count = term.count(), .scale = scales[k]};
    FusedBuffer({&view, 1}, term.dtype()).pack(0, term.count(), slots.emplace_back(term.dtype(), term.count()).data());
  }
  for (const Array& slot : slots) sources.push_back(slot.data());
  Array result(terms[0].dtype(), terms[0].count());
  reduce(result.data(), sources, result.count(), result.dtype(), TNT_SUM);
  return result;
}

std::vector<const void*> addresses(const std::vector<Array>& terms) {
  std::vector<const void*> result;
  for (const Array& term : terms) result.push_back(term.data());
  return result;
}

// Across the cases every position has every kind of scale: none, all and some are 1, 0 or another value.
std::vector<std::vector<double>> scales_of(std::size_t n, tnt_dtype_t dtype) {
  const std::vector<double> kinds = is_float(dtype) ? std::vector{1.0, 0.3, -7.0, 0.0} : std::vector{1.0, 0.0};
  std::vector<std::vector<double>> result;
  for (const double kind : kinds) result.emplace_back(n, kind);
  for (std::size_t first = 0; first < kinds.size(); ++first) {
    std::vector<double>& mixed = result.emplace_back();
    for (std::size_t k = 0; k < n; ++k) mixed.push_back(kinds[(first + k) % kinds.size()]);
  }
  if (is_float(dtype)) {  // none is 0, each is different
    std::vector<double>& mixed = result.emplace_back();
    for (std::size_t k = 0; k < n; ++k) mixed.push_back(static_cast<double>(k + 1) / 37.0);
  }
  return result;
}

class AddScaledTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(AddScaledTest, IsWhatAsManyRanksGive) {
  const std::size_t n = GetParam();
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (const std::size_t count : {0U, 1U, 37U, 4096U, 5003U}) {
      const std::vector<Array> terms = testing::disorderly_arrays(n, dtype, count);
      for (const std::vector<double>& scales : scales_of(n, dtype)) {
        const Array expected = packed_and_reduced(terms, scales);
        for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
          if (!has_isa(isa)) continue;
          Array out(dtype, count);
          add_scaled(out.data(), addresses(terms), scales, count, dtype, isa);
          ASSERT_EQ(out, expected) << dtype_name(dtype) << ", " << scales[0] << " ..., " << isa_name(isa);
        }
        for (const std::size_t over : {std::size_t{0}, n - 1}) {
          std::vector<Array> own = terms;
          add_scaled(own[over].data(), addresses(own), scales, count, dtype);
          ASSERT_EQ(own[over], expected) << dtype_name(dtype) << " over term " << over;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Terms, AddScaledTest, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 9, 21));

// Each product is rounded before it is added: no fused multiply-add.
TEST(AddScaled, RoundsEachProduct) {
  constexpr std::size_t count = 2000;
  const Array a = disorderly_values(TNT_FLOAT32, count, 3);
  const Array b = disorderly_values(TNT_FLOAT32, count, 4);
  Array out(TNT_FLOAT32, count);
  add_scaled(out.data(), std::array{a.data(), b.data()}, std::array{0.1, 0.7}, count, TNT_FLOAT32);
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
  const std::array<float, 3> broken{nan, std::numeric_limits<float>::infinity(), -1.0F};
  const std::array<float, 3> whole{1.0F, 2.0F, 3.0F};
  std::array<float, 3> out{};
  const auto add = [&](const void* a, double scale_a, const void* b, double scale_b) {
    add_scaled(out.data(), std::array{a, b}, std::array{scale_a, scale_b}, 3, TNT_FLOAT32);
  };
  add(broken.data(), 0.0, whole.data(), 1.0);
  EXPECT_EQ(out, whole);
  add(nullptr, 0.0, whole.data(), 2.0);
  EXPECT_EQ(out, (std::array<float, 3>{2.0F, 4.0F, 6.0F}));
  add(nullptr, 0.0, nullptr, 0.0);
  EXPECT_EQ(out, (std::array<float, 3>{}));
}

}  // namespace
}  // namespace tnt
