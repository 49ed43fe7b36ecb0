// The division of buckets into tiles: every element once, no overlap, the documented sizes and limits.
#include "kernels/cuda/bucket_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "support/array.hpp"

namespace tnt::gpu {
namespace {

using testing::all_dtypes;

constexpr tnt_dtype_t floats[] = {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16};

std::size_t larger_size(const TensorShape& tensor, tnt_dtype_t wire) {
  return std::max(dtype_size(tensor.dtype), dtype_size(wire));
}

// Visits the tiles in order: each begins where the previous one ended, in the tensor and in the bucket.
void expect_covers_once(const BucketLayout& layout, const std::vector<TensorShape>& tensors, tnt_dtype_t wire) {
  ASSERT_EQ(layout.slots.size(), tensors.size());
  const std::size_t wire_size = dtype_size(wire);
  std::size_t at = 0;  // in the bucket
  std::size_t next = 0;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].count == 0) continue;  // not placed yet
    ASSERT_GE(layout.slots[index], at);
    ASSERT_EQ(layout.slots[index] * wire_size % (tensors[index].count * wire_size < 4096 ? 16 : 128), 0U);
    for (std::size_t first = 0; first < tensors[index].count; ++next) {
      ASSERT_LT(next, layout.tiles.size());
      const Tile& tile = layout.tiles[next];
      ASSERT_EQ(tile.tensor, index);
      ASSERT_EQ(tile.dtype, static_cast<std::uint32_t>(tensors[index].dtype));
      ASSERT_EQ(tile.first, first);
      ASSERT_EQ(tile.slot, layout.slots[index] + first);
      ASSERT_GT(tile.count, 0U);
      if (next == 0) {
        ASSERT_EQ(tile.slot, 0U);
      } else {  // filled by the previous tile's padding
        ASSERT_EQ(tile.slot, at);
      }
      first += tile.count;
      ASSERT_LE(first, tensors[index].count);
      at = tile.slot + tile.count + tile.padding;
    }
  }
  EXPECT_EQ(next, layout.tiles.size());
  EXPECT_EQ(at, layout.count);
  EXPECT_EQ(layout.count * wire_size % 16, 0U);
}

// A 256th of all bytes, from 4 to 16 KiB, in steps of a kilobyte.
std::size_t tile_bytes_of(const std::vector<TensorShape>& tensors, tnt_dtype_t wire) {
  std::size_t bytes = 0;
  for (const TensorShape& tensor : tensors) bytes += tensor.count * larger_size(tensor, wire);
  return std::clamp<std::size_t>((bytes / 256 + 1023) / 1024 * 1024, 4096, 16'384);
}

void expect_balanced(const BucketLayout& layout, const std::vector<TensorShape>& tensors, tnt_dtype_t wire) {
  const std::size_t most = tile_bytes_of(tensors, wire);
  for (const Tile& tile : layout.tiles) {
    const TensorShape& tensor = tensors[tile.tensor];
    const std::size_t size = larger_size(tensor, wire);
    const std::size_t slack = 128 * size;
    EXPECT_LE(tile.count * size, most);
    EXPECT_LT(tile.padding * dtype_size(wire), 128U);
    if (tensor.count * size <= most) {
      EXPECT_EQ(tile.count, tensor.count);
    } else if (tile.first + tile.count < tensor.count) {
      EXPECT_GE(tile.count * size + slack, most / 2);
      EXPECT_EQ(tile.count % 128, 0U);
    } else {
      EXPECT_GT(tile.count * size + 2 * slack, most / 2);
    }
  }
}

void expect_first_tiles(const BucketLayout& layout, const std::vector<TensorShape>& tensors) {
  ASSERT_EQ(layout.first_tiles.size(), tensors.size() + 1);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    for (std::uint32_t i = layout.first_tiles[index]; i < layout.first_tiles[index + 1]; ++i) {
      ASSERT_EQ(layout.tiles[i].tensor, index);
    }
  }
  ASSERT_EQ(layout.first_tiles.back(), layout.tiles.size());
}

TEST(Tiles, CoverEveryElementOnce) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const tnt_dtype_t wire = all_dtypes[seed % 8];
    std::vector<TensorShape> tensors(random() % 20);
    for (TensorShape& tensor : tensors) {
      const std::size_t limit = std::size_t{1} << random() % 20;
      tensor.count = std::array<std::size_t, 4>{0, 1, random() % limit, random() % limit | 1}[random() % 4];
      tensor.dtype = seed % 8 < 4 ? floats[random() % 4] : wire;
    }
    const BucketLayout layout = make_layout(tensors, wire);
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_covers_once(layout, tensors, wire);
    expect_balanced(layout, tensors, wire);
    expect_first_tiles(layout, tensors);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Tiles, AreCutAtTheBordersThatArePromised) {
  const auto counts = [](std::size_t count) {
    std::vector<std::size_t> result;
    for (const Tile& tile : make_layout(std::vector<TensorShape>{{count, TNT_FLOAT32}}, TNT_FLOAT32).tiles) {
      result.push_back(tile.count);
    }
    return result;
  };
  EXPECT_EQ(counts(0), (std::vector<std::size_t>{}));
  EXPECT_EQ(counts(1), (std::vector<std::size_t>{1}));
  EXPECT_EQ(counts(1024), (std::vector<std::size_t>{1024}));  // 4 KiB
  EXPECT_EQ(counts(1025), (std::vector<std::size_t>{640, 385}));
  EXPECT_EQ(counts(3 * 1024), (std::vector<std::size_t>{1024, 1024, 1024}));
  EXPECT_EQ(counts(3 * 1024 + 1), (std::vector<std::size_t>{896, 768, 768, 641}));
}

// 1 MiB gives work to every multiprocessor, and a large bucket has tiles that cost little each.
TEST(Tiles, AreSmallInSmallBuckets) {
  const auto n_tiles = [](std::size_t bytes) {
    return make_layout(std::vector<TensorShape>{{bytes / 4, TNT_FLOAT32}}, TNT_FLOAT32).tiles.size();
  };
  EXPECT_EQ(n_tiles(std::size_t{1} << 20), 256U);
  EXPECT_EQ(n_tiles(std::size_t{2} << 20), 256U);
  EXPECT_EQ(n_tiles(std::size_t{4} << 20), 256U);
  EXPECT_EQ(n_tiles(std::size_t{64} << 20), 4096U);
}

TEST(Tiles, KnowTheTypeThatAllTensorsHave) {
  using Shapes = std::vector<TensorShape>;
  EXPECT_EQ(make_layout(Shapes{{3, TNT_FLOAT16}, {0, TNT_FLOAT64}, {5, TNT_FLOAT16}}, TNT_FLOAT32).dtype, TNT_FLOAT16);
  EXPECT_EQ(make_layout(Shapes{{3, TNT_FLOAT16}, {1, TNT_FLOAT64}}, TNT_FLOAT32).dtype, mixed_dtypes);
  EXPECT_EQ(make_layout(Shapes{}, TNT_FLOAT32).dtype, mixed_dtypes);
}

TEST(Tiles, CountBytesOfTheLargerSide) {
  const std::vector<TensorShape> doubles{{1024, TNT_FLOAT64}};
  EXPECT_EQ(make_layout(doubles, TNT_FLOAT16).tiles.size(), 2U);
  const std::vector<TensorShape> halves{{1024, TNT_FLOAT16}};
  EXPECT_EQ(make_layout(halves, TNT_FLOAT64).tiles.size(), 2U);
  EXPECT_EQ(make_layout(halves, TNT_FLOAT16).tiles.size(), 1U);
}

TEST(Tiles, PadToSixteenBytesAndBigTensorsToALine) {
  const std::vector<TensorShape> tensors{
      {3, TNT_FLOAT32}, {0, TNT_FLOAT32}, {5, TNT_FLOAT32}, {1024, TNT_FLOAT32}, {1, TNT_FLOAT32}};
  const BucketLayout layout = make_layout(tensors, TNT_FLOAT32);
  EXPECT_EQ(layout.slots, (std::vector<std::size_t>{0, 4, 4, 32, 1056}));
  EXPECT_EQ(layout.count, 1060U);
  std::vector<std::uint32_t> padding;
  for (const Tile& tile : layout.tiles) padding.push_back(tile.padding);
  EXPECT_EQ(padding, (std::vector<std::uint32_t>{1, 23, 0, 3}));
}

// Embeddings with more elements than 32 bits can count.
TEST(Tiles, CountIn64Bits) {
  constexpr std::size_t count = (std::size_t{1} << 33) + 3;
  const std::vector<TensorShape> tensors{{7, TNT_FLOAT32}, {count, TNT_FLOAT32}, {count, TNT_FLOAT16}, {9, TNT_BFLOAT16}};
  const BucketLayout layout = make_layout(tensors, TNT_FLOAT32);
  expect_covers_once(layout, tensors, TNT_FLOAT32);
  EXPECT_GT(layout.slots[3], 2 * count);
  EXPECT_EQ(layout.tiles.back().slot, layout.slots[3]);
}

TEST(Tiles, AreTheSameEveryTime) {
  const std::vector<TensorShape> tensors{{100'000, TNT_FLOAT32}, {17, TNT_FLOAT16}, {64, TNT_FLOAT64}};
  const BucketLayout one = make_layout(tensors, TNT_BFLOAT16);
  const BucketLayout other = make_layout(tensors, TNT_BFLOAT16);
  EXPECT_EQ(one.slots, other.slots);
  EXPECT_EQ(one.count, other.count);
  ASSERT_EQ(one.tiles.size(), other.tiles.size());
  static_assert(sizeof(Tile) == 32, "no bytes that nobody sets: plans are compared and copied as bytes");
  EXPECT_EQ(std::memcmp(one.tiles.data(), other.tiles.data(), one.tiles.size() * sizeof(Tile)), 0);
}

TEST(Tiles, RefuseToCastIntegers) {
  const std::vector<TensorShape> integers{{4, TNT_INT32}, {4, TNT_INT64}};
  try {
    static_cast<void>(make_layout(integers, TNT_INT32));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), "tensor 1 of int64 cannot travel as int32: only floating-point types are cast to one another");
  }
  EXPECT_THROW(static_cast<void>(make_layout(std::vector<TensorShape>{{1, TNT_FLOAT32}}, TNT_INT32)), Error);
  EXPECT_EQ(make_layout({}, TNT_FLOAT32).count, 0U);
}

}  // namespace
}  // namespace tnt::gpu
