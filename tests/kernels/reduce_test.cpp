// The reduction of n buffers: every type and operation around the limits of its block, in place and misaligned.
#include "kernels/cpu/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <type_traits>
#include <vector>

#include "support/array.hpp"
#include "support/effort.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::exact_values;

std::vector<const void*> pointers(const std::vector<Array>& arrays) {
  std::vector<const void*> result;
  result.reserve(arrays.size());
  for (const Array& array : arrays) result.push_back(array.data());
  return result;
}

std::vector<Array> inputs(std::size_t n, tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(exact_values(dtype, count, static_cast<unsigned>(i)));
  return result;
}

std::string name_of(tnt_dtype_t dtype, tnt_op_t op, std::size_t n, std::size_t count) {
  return fmt::format("{} {} of {} buffers of {}", op_name(op), dtype_name(dtype), n, count);
}

class ReduceTest : public ::testing::TestWithParam<std::size_t> {};  // number of buffers

TEST_P(ReduceTest, EqualsTheReference) {
  const std::size_t n = GetParam();
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (const std::size_t count : {0U, 1U, 7U, 1023U, 1024U, 1025U, 3000U}) {
      const auto arrays = inputs(n, dtype, count);
      for (const tnt_op_t op : all_ops) {
        Array out(dtype, count);
        reduce(out.data(), pointers(arrays), count, dtype, op);
        ASSERT_EQ(out, reduced(arrays, op)) << name_of(dtype, op, n, count);
      }
    }
  }
}

TEST_P(ReduceTest, MayWriteOverASource) {
  const std::size_t n = GetParam();
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (std::size_t target = 0; target < n; ++target) {
      auto arrays = inputs(n, dtype, 1025);
      const Array expected = testing::reduced(arrays, TNT_SUM);
      reduce(arrays[target].data(), pointers(arrays), 1025, dtype, TNT_SUM);
      ASSERT_EQ(arrays[target], expected) << name_of(dtype, TNT_SUM, n, 1025) << " into " << target;
    }
  }
}

TEST_P(ReduceTest, NeedsNoAlignment) {
  const std::size_t n = GetParam();
  constexpr std::size_t count = 1030;
  for (const tnt_dtype_t dtype : all_dtypes) {
    const auto arrays = inputs(n, dtype, count);
    const std::size_t bytes = arrays[0].bytes().size();
    std::vector<std::vector<std::byte>> shifted(n + 1, std::vector<std::byte>(bytes + 1));
    std::vector<const void*> sources;
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(shifted[i].data() + 1, arrays[i].data(), bytes);
      sources.push_back(shifted[i].data() + 1);
    }
    for (const tnt_op_t op : {TNT_SUM, TNT_MAX}) {
      reduce(shifted[n].data() + 1, sources, count, dtype, op);
      EXPECT_EQ(std::memcmp(shifted[n].data() + 1, testing::reduced(arrays, op).data(), bytes), 0)
          << name_of(dtype, op, n, count);
    }
  }
}

TEST_P(ReduceTest, OfGroupsOfDifferentSizes) {
  std::vector<std::size_t> sizes;
  testing::Groups reference;
  std::size_t n = 0;
  for (std::size_t group = 0; group < GetParam(); ++group) {
    sizes.push_back(1 + (group * 5 + 2) % 4);
    reference.emplace_back();
    for (std::size_t i = 0; i < sizes.back(); ++i) reference.back().push_back(n++);
  }
  for (const tnt_dtype_t dtype : all_dtypes) {
    const auto arrays = testing::disorderly_arrays(n, dtype, 700);
    Array out(dtype, 700);
    reduce(out.data(), pointers(arrays), 700, dtype, TNT_SUM, best_isa(), sizes);
    ASSERT_EQ(out, testing::tree_sum_of_arrays(arrays, reference)) << dtype_name(dtype);
  }
}

// Of groups that are no parts of the tree over all, too.
TEST_P(ReduceTest, OfGroups) {
  const std::size_t groups = GetParam();
  for (const std::size_t each : {1U, 2U, 3U, 5U}) {
    for (const tnt_dtype_t dtype : all_dtypes) {
      testing::Groups reference(groups);
      for (std::size_t i = 0; i < groups * each; ++i) reference[i / each].push_back(i);
      const auto arrays = testing::disorderly_arrays(groups * each, dtype, 300);
      Array out(dtype, 300);
      reduce(out.data(), pointers(arrays), 300, dtype, TNT_SUM, best_isa(), std::vector<std::size_t>(groups, each));
      ASSERT_EQ(out, testing::tree_sum_of_arrays(arrays, reference)) << groups << " groups of " << each;
      if (each < 3) {
        reduce(out.data(), pointers(arrays), 300, dtype, TNT_SUM);
        ASSERT_EQ(out, testing::tree_sum_of_arrays(arrays, reference)) << groups << " groups of " << each << " as one";
      }
    }
  }
}

TEST_P(ReduceTest, SumsAreNearTheExactOnes) {
  const std::size_t n = GetParam();
  const auto arrays = testing::disorderly_arrays(n, TNT_FLOAT32, 2500);
  Array out(TNT_FLOAT32, 2500);
  reduce(out.data(), pointers(arrays), 2500, TNT_FLOAT32, TNT_SUM);
  for (std::size_t i = 0; i < out.count(); ++i) {
    double exact = 0;
    double magnitude = 0;
    for (const Array& array : arrays) {
      exact += array.get(i);
      magnitude += std::fabs(array.get(i));
    }
    ASSERT_NEAR(out.get(i), exact, magnitude * static_cast<double>(n) * std::numeric_limits<float>::epsilon()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, ReduceTest, ::testing::Range(std::size_t{1}, std::size_t{10}));

class TreeReduceTest : public ::testing::TestWithParam<std::size_t> {};  // number of buffers

// Around the limits of its blocks, with each instruction set, into another buffer and in place, at any address.
TEST_P(TreeReduceTest, AddsNeighboursFirst) {
  const std::size_t n = GetParam();
  for (const tnt_dtype_t dtype : all_dtypes) {
    if (n > 8 && dtype != TNT_FLOAT32 && dtype != TNT_FLOAT16 && dtype != TNT_BFLOAT16) continue;
    for (const std::size_t count : {0U, 1U, 33U, 511U, 512U, 513U, 1027U}) {
      auto arrays = testing::disorderly_arrays(n, dtype, count);
      const Array expected = testing::tree_sum_of_arrays(arrays);
      for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
        if (!has_isa(isa)) continue;
        std::vector<std::byte> misaligned(expected.bytes().size() + 1);
        reduce(misaligned.data() + 1, pointers(arrays), count, dtype, TNT_SUM, isa);
        ASSERT_TRUE(std::equal(expected.bytes().begin(), expected.bytes().end(), misaligned.begin() + 1))
            << name_of(dtype, TNT_SUM, n, count) << ", " << isa_name(isa);
      }
      Array& target = arrays[count % n];
      reduce(target.data(), pointers(arrays), count, dtype, TNT_SUM);
      ASSERT_EQ(target, expected) << name_of(dtype, TNT_SUM, n, count) << " in place";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, TreeReduceTest,
                         ::testing::ValuesIn(testing::some_of<std::size_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 40,
                                                                            64, 100, 129},
                                                                           {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 31})));

// 1 + 2^-24 is 1 in float: only the tree adds the small values to each other first.
TEST(Reduce, AddsNeighboursFirst) {
  const std::array<float, 4> values{1.0F, 0x1p-24F, 0x1p-24F, 0x1p-24F};
  const std::array<const void*, 4> sources{&values[0], &values[1], &values[2], &values[3]};
  float out = 0;
  reduce(&out, sources, 1, TNT_FLOAT32, TNT_SUM);
  EXPECT_EQ(out, 1.0F + 0x1p-23F);
}

template <typename T>
class IntegerReduceTest : public ::testing::Test {};
using Integers = ::testing::Types<std::int8_t, std::uint8_t, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(IntegerReduceTest, Integers);

template <typename T>
constexpr tnt_dtype_t dtype_of = std::is_same_v<T, std::int8_t>     ? TNT_INT8
                                 : std::is_same_v<T, std::uint8_t>  ? TNT_UINT8
                                 : std::is_same_v<T, std::int32_t>  ? TNT_INT32
                                 : std::is_same_v<T, std::int64_t>  ? TNT_INT64
                                 : std::is_same_v<T, std::uint32_t> ? TNT_UINT32
                                                                    : TNT_UINT64;

// Sums and products wrap: both are defined modulo 2^64, so unsigned arithmetic is the reference. Averages of the narrower types
// do not wrap before the division.
TYPED_TEST(IntegerReduceTest, WrapsAndTruncates) {
  constexpr std::size_t n = 3;
  constexpr std::size_t count = 2000;
  std::mt19937_64 random(4);
  std::vector<std::vector<TypeParam>> values(n, std::vector<TypeParam>(count));
  std::vector<const void*> sources;
  for (auto& source : values) {
    for (TypeParam& value : source) value = static_cast<TypeParam>(random());
    sources.push_back(source.data());
  }
  std::vector<TypeParam> sum(count);
  std::vector<TypeParam> product(count);
  std::vector<TypeParam> average(count);
  reduce(sum.data(), sources, count, dtype_of<TypeParam>, TNT_SUM);
  reduce(product.data(), sources, count, dtype_of<TypeParam>, TNT_PROD);
  reduce(average.data(), sources, count, dtype_of<TypeParam>, TNT_AVG);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t total = 0;
    std::uint64_t factor = 1;
    for (const auto& source : values) {
      total += static_cast<std::uint64_t>(source[i]);
      factor *= static_cast<std::uint64_t>(source[i]);
    }
    ASSERT_EQ(sum[i], static_cast<TypeParam>(total));
    ASSERT_EQ(product[i], static_cast<TypeParam>(factor));
    if constexpr (std::is_same_v<TypeParam, std::uint64_t>) {
      ASSERT_EQ(average[i], total / n);
    } else {
      ASSERT_EQ(average[i], static_cast<TypeParam>(static_cast<std::int64_t>(total) / std::int64_t{n}));
    }
  }
}

// With all bits of the type, on any number of sources: in registers, in steps, and one alone.
TYPED_TEST(IntegerReduceTest, BitsAndTruthValues) {
  constexpr std::size_t count = 1030;
  std::mt19937_64 random(5);
  for (const std::size_t n : {1U, 2U, 3U, 9U}) {
    std::vector<std::vector<TypeParam>> values(n, std::vector<TypeParam>(count));
    std::vector<const void*> sources;
    for (auto& source : values) {
      for (TypeParam& value : source) value = random() % 3 == 0 ? TypeParam{0} : static_cast<TypeParam>(random());
      sources.push_back(source.data());
    }
    std::map<tnt_op_t, std::vector<TypeParam>> results;
    for (const tnt_op_t op : testing::integer_ops) {
      results[op].resize(count);
      reduce(results[op].data(), sources, count, dtype_of<TypeParam>, op);
    }
    for (std::size_t i = 0; i < count; ++i) {
      TypeParam all = values[0][i];
      TypeParam any = all;
      TypeParam odd = all;
      std::size_t true_ones = all != 0 ? 1 : 0;
      for (std::size_t source = 1; source < n; ++source) {
        const TypeParam value = values[source][i];
        all = static_cast<TypeParam>(all & value);
        any = static_cast<TypeParam>(any | value);
        odd = static_cast<TypeParam>(odd ^ value);
        true_ones += value != 0 ? 1 : 0;
      }
      ASSERT_EQ(results[TNT_BAND][i], all);
      ASSERT_EQ(results[TNT_BOR][i], any);
      ASSERT_EQ(results[TNT_BXOR][i], odd);
      ASSERT_EQ(results[TNT_LAND][i], TypeParam{true_ones == n});
      ASSERT_EQ(results[TNT_LOR][i], TypeParam{true_ones > 0});
      ASSERT_EQ(results[TNT_LXOR][i], static_cast<TypeParam>(true_ones % 2));
    }
  }
}

TEST(Reduce, FloatsHaveNoBits) {
  Array array(TNT_FLOAT32, 1);
  EXPECT_THROW(reduce(array.data(), pointers({array}), 1, TNT_FLOAT32, TNT_LOR), Error);
}

TEST(Reduce, NanStaysInMinAndMax) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16}) {
    for (std::size_t where = 0; where < 3; ++where) {
      auto arrays = inputs(3, dtype, 4);
      arrays[where].set(2, nan);
      for (const tnt_op_t op : {TNT_MIN, TNT_MAX}) {
        Array out(dtype, 4);
        reduce(out.data(), pointers(arrays), 4, dtype, op);
        EXPECT_TRUE(std::isnan(out.get(2))) << dtype_name(dtype) << " " << op_name(op) << " from " << where;
        EXPECT_FALSE(std::isnan(out.get(1)));
      }
    }
  }
}

TEST(Reduce, HalfSumsAreRoundedOnce) {
  Array one(TNT_FLOAT16, 1);
  Array tiny(TNT_FLOAT16, 1);
  one.set(0, 1.0);
  tiny.set(0, 0x1p-12);  // half of half a unit in the last place: lost each time if added one by one in float16
  std::vector<Array> arrays{one, tiny, tiny, tiny, tiny};
  Array out(TNT_FLOAT16, 1);
  reduce(out.data(), pointers(arrays), 1, TNT_FLOAT16, TNT_SUM);
  EXPECT_EQ(out.get(0), 1.0 + 0x1p-10);
}

TEST(Reduce, WhatIsNoOperationIsRefused) {
  Array array(TNT_FLOAT32, 1);
  EXPECT_THROW(reduce(array.data(), pointers({array}), 1, TNT_FLOAT32, static_cast<tnt_op_t>(77)), Error);
}

}  // namespace
}  // namespace tnt
