#include "kernels/cuda/bucket_layout.hpp"

#include <algorithm>
#include <limits>

#include "common/memory.hpp"

namespace tnt::gpu {
namespace {

constexpr std::size_t min_tile_bytes = std::size_t{4} * 1024;                // one load of 16 bytes for each of 256 threads
constexpr std::size_t wanted_tiles = 256;                                    // more than any GPU has multiprocessors
constexpr std::size_t max_tiles = std::numeric_limits<std::int32_t>::max();  // blocks count them in 32 bits, in strides
constexpr std::size_t granule = 128;  // elements; a multiple of a cache line for any type
constexpr std::size_t vector_bytes = 16;
constexpr std::size_t line_bytes = 128;
constexpr std::size_t big_bytes = 4096;  // padding to a cache line is negligible from this size on

bool is_floating(tnt_dtype_t dtype) { return is_float8(dtype) || (is_dtype(dtype) && !is_integer(dtype)); }

void check(std::size_t index, const TensorShape& tensor, tnt_dtype_t wire) {
  if (tensor.dtype == wire || (is_floating(tensor.dtype) && is_floating(wire))) return;
  fail(TNT_INVALID_ARGUMENT, "tensor {} of {} cannot travel as {}: only floating-point types are cast to one another", index,
       dtype_name(tensor.dtype), dtype_name(wire));
}

// Cuts a tensor into tiles whose numbers of granules differ by at most one; the last tile has the remainder.
void add_tiles(std::vector<Tile>& tiles, std::size_t index, const TensorShape& tensor, std::size_t slot,
               std::size_t larger_size, std::size_t tile_bytes) {
  const std::size_t granules = divided_up(tensor.count, granule);
  const std::size_t granules_per_tile = tile_bytes / larger_size / granule;
  const std::size_t n = divided_up(granules, granules_per_tile);
  for (std::size_t i = 0, first = 0; i < n; ++i) {
    const std::size_t length = (granules / n + (i < granules % n ? 1 : 0)) * granule;
    const std::size_t count = std::min(length, tensor.count - first);
    tiles.push_back({.first = first,
                     .slot = slot + first,
                     .tensor = static_cast<std::uint32_t>(index),
                     .count = static_cast<std::uint32_t>(count),
                     .dtype = static_cast<std::uint32_t>(tensor.dtype)});
    first += count;
  }
}

std::size_t larger_size(const TensorShape& tensor, tnt_dtype_t wire) {
  return std::max(dtype_size(wire), dtype_size(tensor.dtype));
}

// A multiple of granules of 8 bytes, so that a tile is a whole number of granules of any type.
std::size_t tile_bytes_of(std::span<const TensorShape> tensors, tnt_dtype_t wire) {
  std::size_t bytes = 0;
  for (const TensorShape& tensor : tensors) bytes += tensor.count * larger_size(tensor, wire);
  return std::clamp(rounded_up(bytes / wanted_tiles, granule * 8), min_tile_bytes, max_tile_bytes);
}

int common_dtype(std::span<const TensorShape> tensors) {
  int common = mixed_dtypes;
  for (const TensorShape& tensor : tensors) {
    if (tensor.count == 0) continue;
    if (common != mixed_dtypes && common != tensor.dtype) return mixed_dtypes;
    common = tensor.dtype;
  }
  return common;
}

}  // namespace

BucketLaunch BucketLayout::launch(const Tile* on_device, const TensorArgument* tensors, void* bucket) const {
  return {.tensors = tensors,
          .first_tiles = first_tiles.data(),
          .n_tensors = static_cast<std::uint32_t>(slots.size()),
          .n_tiles = static_cast<std::uint32_t>(tiles.size()),
          .dtype = dtype,
          .wire = wire,
          .max_ctas = 0,
          .tiles = on_device,
          .bucket = bucket,
          .statistics = nullptr};
}

BucketLayout make_layout(std::span<const TensorShape> tensors, tnt_dtype_t wire) {
  BucketLayout layout;
  layout.wire = wire;
  layout.dtype = common_dtype(tensors);
  layout.slots.reserve(tensors.size());
  layout.first_tiles.reserve(tensors.size() + 1);
  const std::size_t wire_size = dtype_size(wire);
  const std::size_t tile_bytes = tile_bytes_of(tensors, wire);
  // Padding before an element belongs to the previous tile.
  const auto align_to = [&](std::size_t multiple_bytes) {
    const std::size_t begin = rounded_up(layout.count, multiple_bytes / wire_size);
    if (!layout.tiles.empty()) layout.tiles.back().padding += static_cast<std::uint32_t>(begin - layout.count);
    layout.count = begin;
  };
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const TensorShape& tensor = tensors[index];
    check(index, tensor, wire);
    align_to(tensor.count * wire_size < big_bytes ? vector_bytes : line_bytes);
    layout.slots.push_back(layout.count);
    layout.first_tiles.push_back(static_cast<std::uint32_t>(layout.tiles.size()));
    add_tiles(layout.tiles, index, tensor, layout.count, larger_size(tensor, wire), tile_bytes);
    layout.count += tensor.count;
  }
  layout.first_tiles.push_back(static_cast<std::uint32_t>(layout.tiles.size()));
  align_to(vector_bytes);
  if (layout.tiles.size() > max_tiles) {
    fail(TNT_INVALID_ARGUMENT, "a bucket of {} elements has {} tiles, and {} are possible: make smaller buckets", layout.count,
         layout.tiles.size(), max_tiles);
  }
  return layout;
}

}  // namespace tnt::gpu
