// Pack, unpack and scale: random tensors in random chunks, compared with one flat vector.
#include "kernels/cpu/pack.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support/array.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::Array;
using testing::exact_values;

// Tensors of random sizes, some empty, some scaled, some without a result; and the expected flat vector.
struct Tensors {
  Tensors(tnt_dtype_t dtype, unsigned seed) : flat(dtype, 0) {
    std::mt19937 random(seed);
    const std::size_t n = random() % 12;
    std::size_t total = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t count = random() % 3 == 0 ? 0 : random() % 300;
      in.push_back(exact_values(dtype, count, random()));
      out.emplace_back(dtype, count);
      scales.push_back(std::array{1.0, 1.0, 2.0, 0.5, 0.0}[random() % 5]);
      wanted.push_back(random() % 4 != 0);
      total += count;
    }
    flat = Array(dtype, total);
    for (std::size_t i = 0, at = 0; i < n; ++i) {
      for (std::size_t k = 0; k < in[i].count(); ++k) flat.set(at++, scales[i] * in[i].get(k) + 0.0);  // no negative zero
    }
  }

  [[nodiscard]] std::vector<TensorView> views() {
    std::vector<TensorView> result;
    for (std::size_t i = 0; i < in.size(); ++i) {
      result.push_back({.in = scales[i] == 0.0 ? nullptr : in[i].data(),
                        .out = wanted[i] ? out[i].data() : nullptr,
                        .count = in[i].count(),
                        .scale = scales[i]});
    }
    return result;
  }

  std::vector<Array> in;
  std::vector<Array> out;
  std::vector<double> scales;
  std::vector<bool> wanted;
  Array flat;
};

TEST(FusedBuffer, PacksAndUnpacksInAnyChunks) {
  for (unsigned seed = 0; seed < 160; ++seed) {
    const tnt_dtype_t dtype = all_dtypes[seed % 8];
    Tensors tensors(dtype, seed);
    const auto views = tensors.views();
    const tnt::FusedBuffer fused(views, dtype);
    ASSERT_EQ(fused.count(), tensors.flat.count());
    std::mt19937 random(seed);
    Array packed(dtype, fused.count());
    const Array result = exact_values(dtype, fused.count(), seed + 1000);
    for (std::size_t begin = 0; begin < fused.count();) {
      const std::size_t part = std::min<std::size_t>(1 + random() % 200, fused.count() - begin);
      Array chunk(dtype, part);
      fused.pack(begin, part, chunk.data());
      packed.place(begin, chunk);
      fused.unpack(begin, part, result.part(begin, part).data());
      begin += part;
    }
    EXPECT_EQ(packed, tensors.flat) << "seed " << seed;
    for (std::size_t i = 0, at = 0; i < views.size(); at += views[i].count, ++i) {
      const Array expected = tensors.wanted[i] ? result.part(at, views[i].count) : Array(dtype, views[i].count);
      EXPECT_EQ(tensors.out[i], expected) << "seed " << seed << ", piece " << i;
    }
  }
}

// Values that the buffer's type cannot represent are rounded to the nearest, with ordinary and streaming stores, in any chunks.
TEST(FusedBuffer, CastsTensorsOfOtherTypes) {
  for (const tnt_dtype_t wire : {TNT_FLOAT16, TNT_BFLOAT16, TNT_FLOAT32}) {
    for (const Store store : {Store::cached, Store::streaming}) {
      std::mt19937 random(7);
      std::vector<Array> in;
      std::vector<Array> out;
      std::vector<TensorView> views;
      for (const tnt_dtype_t own : {TNT_FLOAT32, TNT_FLOAT16, TNT_BFLOAT16, TNT_FLOAT64, wire}) {
        in.emplace_back(own, 3001);
        out.emplace_back(own, 3001);
        for (std::size_t i = 0; i < 3001; ++i) {  // 24 bits: a rounding to float32 in between changes nothing
          in.back().set(i,
                        std::ldexp(static_cast<double>(random() % 0x1000000) - 0x1p23, static_cast<int>(random() % 20) - 30));
        }
      }
      for (std::size_t i = 0; i < in.size(); ++i) {
        views.push_back(
            {.in = in[i].data(), .out = out[i].data(), .count = 3001, .scale = i == 1 ? 0.25 : 1.0, .dtype = in[i].dtype()});
      }
      const tnt::FusedBuffer fused(views, wire);
      Array packed(wire, fused.count());
      const std::size_t size = dtype_size(wire);
      for (std::size_t begin = 0; begin < fused.count();) {
        const std::size_t part = std::min<std::size_t>(1 + random() % 2000, fused.count() - begin);
        fused.pack(begin, part, static_cast<std::byte*>(packed.data()) + begin * size, store);
        fused.unpack(begin, part, static_cast<std::byte*>(packed.data()) + begin * size, store);
        begin += part;
      }
      for (std::size_t i = 0, at = 0; i < in.size(); ++i) {
        for (std::size_t k = 0; k < 3001; ++k, ++at) {
          Array expected(wire, 1);
          expected.set(0, views[i].scale * in[i].get(k));
          ASSERT_EQ(packed.get(at), expected.get(0)) << dtype_name(wire) << ", piece " << i << ", element " << k;
          Array back(in[i].dtype(), 1);
          back.set(0, packed.get(at));
          ASSERT_EQ(out[i].get(k), back.get(0)) << dtype_name(wire) << ", piece " << i << ", element " << k;
        }
      }
    }
  }
}

TEST(FusedBuffer, CastsDenormalsZerosAndInfinities) {
  const std::vector<float> values{0x1p-24F, -0x1.8p-20F, 0x1p-26F, 70'000.0F, -std::numeric_limits<float>::infinity(), -0.0F};
  std::vector<float> out(values.size());
  const TensorView view{.in = values.data(), .out = out.data(), .count = values.size(), .dtype = TNT_FLOAT32};
  const tnt::FusedBuffer fused({&view, 1}, TNT_FLOAT16);
  Array packed(TNT_FLOAT16, values.size());
  fused.pack(0, values.size(), packed.data());
  fused.unpack(0, values.size(), packed.data());
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(out, (std::vector<float>{0x1p-24F, -0x1.8p-20F, 0.0F, infinity, -infinity, -0.0F}));
  EXPECT_TRUE(std::signbit(out[5]));
}

TEST(FusedBuffer, KnowsWhetherItNarrows) {
  const auto narrows = [](std::vector<std::optional<tnt_dtype_t>> dtypes, tnt_dtype_t wire) {
    std::vector<TensorView> views;
    for (const auto& dtype : dtypes) views.push_back({.dtype = dtype});
    return tnt::FusedBuffer(views, wire).narrows();
  };
  EXPECT_TRUE(narrows({TNT_FLOAT32, TNT_FLOAT64}, TNT_FLOAT16));
  EXPECT_FALSE(narrows({TNT_FLOAT32, TNT_FLOAT16}, TNT_FLOAT16));
  EXPECT_FALSE(narrows({std::nullopt}, TNT_FLOAT32));
  EXPECT_FALSE(narrows({TNT_FLOAT16}, TNT_FLOAT32));
}

TEST(Scale, DoesNotCastIntegers) {
  std::int32_t integer = 1;
  float number = 1;
  EXPECT_THROW(scale(&number, TNT_FLOAT32, &integer, TNT_INT32, 1, 1.0), Error);
  EXPECT_THROW(scale(&integer, TNT_INT32, &number, TNT_FLOAT32, 1, 1.0), Error);
}

TEST(FusedBuffer, MayBeEmpty) {
  const tnt::FusedBuffer none({}, TNT_FLOAT32);
  EXPECT_EQ(none.count(), 0U);
  none.pack(0, 0, nullptr);
  none.unpack(0, 0, nullptr);
  const std::vector<TensorView> empty(3);
  const tnt::FusedBuffer fused(empty, TNT_INT8);
  fused.pack(0, 0, nullptr);
  EXPECT_EQ(fused.count(), 0U);
}

TEST(Scale, ZeroReadsNothing) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    Array to = exact_values(dtype, 9, 1);
    scale(to.data(), dtype, nullptr, dtype, 9, 0.0);
    EXPECT_EQ(to, Array(dtype, 9)) << dtype_name(dtype);
  }
  Array nan(TNT_FLOAT32, 2);
  nan.set(0, std::numeric_limits<double>::quiet_NaN());
  scale(nan.data(), TNT_FLOAT32, nan.data(), TNT_FLOAT32, 2, 0.0);
  EXPECT_EQ(nan.get(0), 0.0);
}

TEST(Scale, RoundsOnceAndWorksInPlaceUnaligned) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16}) {
    constexpr std::size_t count = 1000;
    std::mt19937 random(5);
    Array in(dtype, count);
    Array expected(dtype, count);
    for (std::size_t i = 0; i < count; ++i) {
      in.set(i, std::uniform_real_distribution<double>(-2, 2)(random));
      expected.set(i, in.get(i) * 0.375);  // three bits: the product is exact in double
    }
    std::vector<std::byte> memory(in.bytes().size() + 1);
    std::byte* unaligned = memory.data() + 1;
    std::memcpy(unaligned, in.data(), in.bytes().size());
    scale(unaligned, dtype, unaligned, dtype, count, 0.375);
    EXPECT_EQ(std::memcmp(unaligned, expected.data(), in.bytes().size()), 0) << dtype_name(dtype);
  }
}

TEST(Scale, IntegersSaturateAt64Bits) {
  std::int64_t value = std::numeric_limits<std::int64_t>::max();
  scale(&value, TNT_INT64, &value, TNT_INT64, 1, 4.0);
  EXPECT_GT(value, std::int64_t{1} << 62);
  value = std::numeric_limits<std::int64_t>::min();
  scale(&value, TNT_INT64, &value, TNT_INT64, 1, 4.0);
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::min());
  std::uint64_t whole = (std::uint64_t{1} << 63) + 4096;
  scale(&whole, TNT_UINT64, &whole, TNT_UINT64, 1, 0.5);
  EXPECT_EQ(whole, (std::uint64_t{1} << 62) + 2048);
  scale(&whole, TNT_UINT64, &whole, TNT_UINT64, 1, 8.0);
  EXPECT_GT(whole, std::numeric_limits<std::uint64_t>::max() - 4096);
}

}  // namespace
}  // namespace tnt
