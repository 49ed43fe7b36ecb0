// Pack, unpack and scale: random pieces in random chunks against one flat vector.
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

// Tensors of random sizes, some empty, some scaled, some not wanted back; and what they are in one piece.
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

  [[nodiscard]] std::vector<Piece> pieces() {
    std::vector<Piece> result;
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

TEST(Run, PacksAndUnpacksInAnyChunks) {
  for (unsigned seed = 0; seed < 160; ++seed) {
    const tnt_dtype_t dtype = all_dtypes[seed % 8];
    Tensors tensors(dtype, seed);
    const auto pieces = tensors.pieces();
    const tnt::Run run(pieces, dtype);
    ASSERT_EQ(run.count(), tensors.flat.count());
    std::mt19937 random(seed);
    Array packed(dtype, run.count());
    const Array result = exact_values(dtype, run.count(), seed + 1000);
    for (std::size_t begin = 0; begin < run.count();) {
      const std::size_t part = std::min<std::size_t>(1 + random() % 200, run.count() - begin);
      Array chunk(dtype, part);
      run.pack(begin, part, chunk.data());
      packed.place(begin, chunk);
      run.unpack(begin, part, result.part(begin, part).data());
      begin += part;
    }
    EXPECT_EQ(packed, tensors.flat) << "seed " << seed;
    for (std::size_t i = 0, at = 0; i < pieces.size(); at += pieces[i].count, ++i) {
      const Array expected = tensors.wanted[i] ? result.part(at, pieces[i].count) : Array(dtype, pieces[i].count);
      EXPECT_EQ(tensors.out[i], expected) << "seed " << seed << ", piece " << i;
    }
  }
}

TEST(Run, MayBeEmpty) {
  const tnt::Run none({}, TNT_FLOAT32);
  EXPECT_EQ(none.count(), 0U);
  none.pack(0, 0, nullptr);
  none.unpack(0, 0, nullptr);
  const std::vector<Piece> empty(3);
  const tnt::Run run(empty, TNT_INT8);
  run.pack(0, 0, nullptr);
  EXPECT_EQ(run.count(), 0U);
}

TEST(Scale, ZeroReadsNothing) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    Array to = exact_values(dtype, 9, 1);
    scale(to.data(), nullptr, 9, dtype, 0.0);
    EXPECT_EQ(to, Array(dtype, 9)) << dtype_name(dtype);
  }
  Array nan(TNT_FLOAT32, 2);
  nan.set(0, std::numeric_limits<double>::quiet_NaN());
  scale(nan.data(), nan.data(), 2, TNT_FLOAT32, 0.0);
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
    scale(unaligned, unaligned, count, dtype, 0.375);
    EXPECT_EQ(std::memcmp(unaligned, expected.data(), in.bytes().size()), 0) << dtype_name(dtype);
  }
}

TEST(Scale, IntegersSaturateAt64Bits) {
  std::int64_t value = std::numeric_limits<std::int64_t>::max();
  scale(&value, &value, 1, TNT_INT64, 4.0);
  EXPECT_GT(value, std::int64_t{1} << 62);
  value = std::numeric_limits<std::int64_t>::min();
  scale(&value, &value, 1, TNT_INT64, 4.0);
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace tnt
