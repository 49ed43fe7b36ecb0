#include "kernels/cuda/move.cuh"
#include "kernels/cuda/wire.cuh"

namespace tnt::gpu {
namespace {

// What lies in the bucket already is only looked at for the statistics: written again as it is.
template <typename Wire>
__device__ void pack_tile(const Tile& tile, const TensorArgument& tensor, std::byte* to, tnt_dtype_t wire, Share& share) {
  if (tensor.scale == 0.0) return fill_zero(to, std::size_t{tile.count} * sizeof(Wire));
  const bool is_there = tensor.in == nullptr;
  if (is_there && !share.is_wanted()) return;
  dispatch_tensor<Wire>(is_there ? static_cast<std::uint32_t>(wire) : tile.dtype, [&](auto element) {
    using From = decltype(element);
    const auto* from = is_there ? to : static_cast<const std::byte*>(tensor.in) + tile.first * sizeof(From);
    move<Wire, From>(to, from, tile.count, Scale<Wire, From>(is_there ? 1.0 : tensor.scale), share);
  });
}

template <typename Wire>
__global__ void __launch_bounds__(threads, 4) pack_kernel(const BucketLaunch launch) {
  for (std::uint64_t i = blockIdx.x; i < launch.n_tiles; i += gridDim.x) {
    const Tile tile = launch.tiles[i];
    auto* to = static_cast<std::byte*>(launch.bucket) + tile.slot * sizeof(Wire);
    Share share(launch.statistics != nullptr);
    pack_tile<Wire>(tile, launch.tensors[tile.tensor], to, launch.wire, share);
    fill_zero(to + std::size_t{tile.count} * sizeof(Wire), std::size_t{tile.padding} * sizeof(Wire));
    share.write_total(launch.statistics, i);
  }
}

}  // namespace

void pack(const BucketLaunch& launch, Stream stream) {
  if (launch.n_tiles == 0) return;
  const unsigned blocks = blocks_for(launch.n_tiles, launch.max_ctas);
  dispatch_wire(launch.wire, [&](auto element) { TNT_LAUNCH(blocks, stream, pack_kernel<decltype(element)>, launch); });
}

}  // namespace tnt::gpu
