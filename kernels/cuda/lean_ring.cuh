// Lean kernels for few blocks (max_ctas): a block takes tiles in turn and has the next four of them in flight, 64 KiB, by bulk
// copies into a ring in shared memory. 16 blocks then have as many bytes in flight as HBM needs for a terabyte a second.
#pragma once

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/lean.cuh"

namespace tnt::gpu {

inline constexpr std::uint32_t ring_stages = 4;
inline constexpr std::uint32_t ring_bytes = ring_stages * max_tile_bytes;

// The part of a launch that a tile is.
struct TileMove {
  std::byte* to;
  const std::byte* from;  // nullptr: nothing is read
  std::uint32_t count;
  std::uint32_t padding;
  double scale;
};

template <typename Move, Direction direction, std::uint32_t capacity>
[[nodiscard]] __device__ __forceinline__ TileMove move_of(const KernelArguments<capacity>& arguments, std::uint32_t index,
                                                          std::uint32_t parts) {
  const Tile tile = load_tile(arguments.tiles + index);
  const TensorSide& tensor = arguments.of(tile);
  const std::uint32_t count = tile.count * parts;
  if constexpr (direction == Direction::pack) {
    std::byte* const to = arguments.bucket + tile.slot * parts * sizeof(typename Move::Target);
    const bool read = tensor.scale != 0.0 && tensor.address != nullptr;
    const std::byte* const from = tensor.address + tile.first * parts * sizeof(typename Move::Source);
    return {to, read ? from : nullptr, count, tile.padding * parts, tensor.scale};
  } else {
    std::byte* const to = tensor.address + tile.first * parts * sizeof(typename Move::Target);
    const std::byte* const from = arguments.bucket + tile.slot * parts * sizeof(typename Move::Source);
    return {to, tensor.address == nullptr ? nullptr : from, count, 0, 1.0};
  }
}

// The bytes of a tile that travel by a bulk copy; the last few elements do not.
template <typename Move>
[[nodiscard]] __device__ __forceinline__ std::uint32_t bulk_bytes(const TileMove& tile) {
  return tile.from == nullptr ? 0 : tile.count * static_cast<std::uint32_t>(sizeof(typename Move::Source)) / 16 * 16;
}

// staged: the first bulk_bytes of the tile, in shared memory.
template <typename Move>
__device__ __forceinline__ void move_staged(const TileMove& tile, const std::byte* staged) {
  using Target = typename Move::Target;
  using Source = typename Move::Source;
  lean_zero<Target>(tile.to + std::size_t{tile.count} * sizeof(Target), tile.padding);
  if (tile.scale == 0.0) lean_zero<Target>(tile.to, tile.count);
  if (tile.from == nullptr) return;
  const Move move(tile.scale);
  const std::uint32_t bytes = bulk_bytes<Move>(tile);
  const auto* in = reinterpret_cast<const typename Move::In*>(staged);
  auto* out = reinterpret_cast<typename Move::Out*>(tile.to);
  for (std::uint32_t i = threadIdx.x; i < bytes / sizeof(typename Move::In); i += threads) {
    store(out + i, move.unit(TNT_AT(in + i)));
  }
  const std::uint32_t last = bytes / sizeof(Source) + threadIdx.x;
  if (last >= tile.count) return;
  reinterpret_cast<Target*>(tile.to)[last] = move.element(reinterpret_cast<const Source*>(tile.from)[last]);
}

// Only launched where there are bulk copies, with at most as many blocks as tiles.
template <typename Move, Direction direction>
__global__ void __launch_bounds__(threads, 1)
    lean_ring_kernel(TNT_PARAMETER(KernelArguments<few_tensors>) arguments, std::uint32_t bytes) {
#if TNT_HAS_BULK_COPIES
  TNT_DYNAMIC_SHARED(ring, ring_bytes);
  __shared__ Barrier full[ring_stages];
  const std::uint32_t parts = Move::parts(bytes);
  const std::uint32_t n = (arguments.n_tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;  // tiles of this block
  const auto tile_at = [&](std::uint32_t k) { return move_of<Move, direction>(arguments, blockIdx.x + k * gridDim.x, parts); };
  const auto start = [&](std::uint32_t k) {
    const TileMove tile = tile_at(k);
    const std::uint32_t stage = k % ring_stages;
    start_copy(ring + stage * max_tile_bytes, tile.from, bulk_bytes<Move>(tile), full + stage);
  };
  if (threadIdx.x == 0) {
    init_barriers(full, ring_stages);
    for (std::uint32_t k = 0; k < n && k < ring_stages; ++k) start(k);
  }
  __syncthreads();
  for (std::uint32_t k = 0; k < n; ++k) {
    const std::uint32_t stage = k % ring_stages;
    const TileMove tile = tile_at(k);
    wait_for_copy(full + stage, k / ring_stages % 2);
    move_staged<Move>(tile, ring + stage * max_tile_bytes);
    __syncthreads();  // all have read the stage
    if (threadIdx.x == 0 && k + ring_stages < n) start(k + ring_stages);
  }
#else
  static_cast<void>(bytes);
  __trap();  // never launched: has_bulk_copies
#endif
}

// bytes: of an element.
template <typename Move, Direction direction>
void launch_ring(const BucketLaunch& launch, std::uint32_t bytes, Stream stream) {
  for_each_part<few_tensors>(launch, direction, [&](const auto& arguments) {
    const unsigned blocks = blocks_for(arguments.n_tiles, launch.max_ctas);
    TNT_LAUNCH_SHARED(blocks, ring_bytes, stream, (lean_ring_kernel<Move, direction>), arguments, bytes);
  });
}

}  // namespace tnt::gpu
