#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

// out may be nullptr: then the tensor is only read for its statistics.
template <typename Wire>
__device__ void unpack_tile(const Tile& tile, std::byte* out, const std::byte* from, StatisticsAccumulator& stats) {
  if (out == nullptr && !stats.enabled()) return;
  dispatch_tensor<Wire>(tile.dtype, [&](auto element) {
    using To = decltype(element);
    if (out == nullptr) return add_transformed<To, Wire>(from, tile.count, Scale<To, Wire>(), stats);
    transform<To, Wire>(out + tile.first * sizeof(To), from, tile.count, Scale<To, Wire>(), stats);
  });
}

template <typename Wire>
__global__ void __launch_bounds__(threads, 4) unpack_kernel(const BucketLaunch launch) {
  for (std::uint64_t i = blockIdx.x; i < launch.n_tiles; i += gridDim.x) {
    const Tile tile = launch.tiles[i];
    auto* out = static_cast<std::byte*>(launch.tensors[tile.tensor].out);
    const auto* from = static_cast<const std::byte*>(launch.bucket) + tile.slot * sizeof(Wire);
    StatisticsAccumulator stats(launch.statistics != nullptr);
    unpack_tile<Wire>(tile, out, from, stats);
    stats.write_total(launch.statistics, i);
  }
}

}  // namespace

void unpack(const BucketLaunch& launch, Stream stream) {
  if (launch.n_tiles == 0) return;
  const unsigned blocks = blocks_for(launch.n_tiles, launch.max_ctas);
  dispatch_wire(launch.wire, [&](auto element) {
    using Wire = decltype(element);
    TNT_LAUNCH(blocks, stream, unpack_kernel<Wire>, launch);
  });
}

}  // namespace tnt::gpu
