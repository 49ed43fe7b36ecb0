#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

// A tensor that is already in the bucket is only read for its statistics and written back unchanged.
template <typename Wire>
__device__ void pack_tile(const Tile& tile, const TensorArgument& tensor, std::byte* to, tnt_dtype_t wire,
                          StatisticsAccumulator& stats) {
  if (tensor.scale == 0.0) return fill_zero(to, std::size_t{tile.count} * sizeof(Wire));
  const bool in_bucket = tensor.in == nullptr;
  if (in_bucket && !stats.enabled()) return;
  dispatch_tensor<Wire>(in_bucket ? static_cast<std::uint32_t>(wire) : tile.dtype, [&](auto element) {
    using From = decltype(element);
    const auto* from = in_bucket ? to : static_cast<const std::byte*>(tensor.in) + tile.first * sizeof(From);
    transform<Wire, From>(to, from, tile.count, Scale<Wire, From>(in_bucket ? 1.0 : tensor.scale), stats);
  });
}

template <typename Wire>
__global__ void __launch_bounds__(threads, 4) pack_kernel(const BucketLaunch launch) {
  for (std::uint64_t i = blockIdx.x; i < launch.n_tiles; i += gridDim.x) {
    const Tile tile = launch.tiles[i];
    auto* to = static_cast<std::byte*>(launch.bucket) + tile.slot * sizeof(Wire);
    StatisticsAccumulator stats(launch.statistics != nullptr);
    pack_tile<Wire>(tile, launch.tensors[tile.tensor], to, launch.wire, stats);
    fill_zero(to + std::size_t{tile.count} * sizeof(Wire), std::size_t{tile.padding} * sizeof(Wire));
    stats.write_total(launch.statistics, i);
  }
}

}  // namespace

void pack(const BucketLaunch& launch, Stream stream) {
  if (launch.n_tiles == 0) return;
  const unsigned blocks = blocks_for(launch.n_tiles, launch.max_ctas);
  dispatch_wire(launch.wire, [&](auto element) { TNT_LAUNCH(blocks, stream, pack_kernel<decltype(element)>, launch); });
}

}  // namespace tnt::gpu
