#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/host_side.hpp"
#include "kernels/cuda/lean_ring.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

// out may be nullptr: then the tensor is only read for its statistics.
template <typename Wire>
__device__ void unpack_tile(const Tile& tile, std::byte* out, const std::byte* from, double factor,
                            StatisticsAccumulator& stats) {
  if (out == nullptr && !stats.enabled()) return;
  dispatch_tensor<Wire>(tile.dtype, [&](auto element) {
    using To = decltype(element);
    const Scale<To, Wire> scale(factor);
    if (out == nullptr) return add_transformed<To, Wire>(from, tile.count, scale, stats);
    transform<To, Wire>(out + tile.first * sizeof(To), from, tile.count, scale, stats);
  });
}

template <typename Wire>
__global__ void __launch_bounds__(threads, 4) unpack_kernel(TNT_PARAMETER(KernelArguments<few_tensors>) arguments) {
  const double factor = arguments.factor == nullptr ? 1.0 : *arguments.factor;
  for (std::uint32_t i = blockIdx.x; i < arguments.n_tiles; i += gridDim.x) {
    const Tile tile = load_tile(arguments.tiles + i);
    const auto* from = arguments.bucket + tile.slot * sizeof(Wire);
    StatisticsAccumulator stats(arguments.statistics != nullptr);
    unpack_tile<Wire>(tile, arguments.of(tile).address, from, factor, stats);
    stats.write_total(arguments.statistics, i);
  }
}

void unpack_any(const BucketLaunch& launch, Stream stream) {
  for_each_part<few_tensors>(launch, Direction::unpack, [&](const auto& arguments) {
    const unsigned blocks = blocks_for(arguments.n_tiles, launch.max_ctas);
    dispatch_wire(launch.wire, [&](auto element) { TNT_LAUNCH(blocks, stream, unpack_kernel<decltype(element)>, arguments); });
  });
}

// bytes: of an element.
template <typename Move>
void unpack_lean(const BucketLaunch& launch, std::uint32_t bytes, Stream stream) {
  if (is_limited(launch)) return launch_ring<Move, Direction::unpack>(launch, bytes, stream);
  with_capacity_that_fits(launch, Direction::unpack, [&](const auto& arguments) {
    TNT_LAUNCH(arguments.n_tiles, stream, (lean_unpack_kernel<Move, std::decay_t<decltype(arguments)>::capacity>), arguments,
               bytes);
  });
}

template <typename Move>
void load_lean_unpack() {
  TNT_LOAD((lean_unpack_kernel<Move, few_tensors>));
  if (has_bulk_copies()) TNT_LOAD((lean_ring_kernel<Move, Direction::unpack>));
  if (max_tensors_per_launch() > few_tensors) TNT_LOAD((lean_unpack_kernel<Move, max_capacity>));
}

}  // namespace

void unpack(const BucketLaunch& launch, Stream stream) {
  switch (kernel_of(launch, Direction::unpack)) {
    case KernelKind::copy: return unpack_lean<LeanCopy>(launch, bytes_of(launch.wire), stream);
    case KernelKind::cast:
      return dispatch_half(launch.wire, [&](auto half) { unpack_lean<LeanCast<float, decltype(half)>>(launch, 0, stream); });
    case KernelKind::general: return unpack_any(launch, stream);
  }
}

void load_unpack() {
  for_each_dtype([](auto element) { TNT_LOAD(unpack_kernel<decltype(element)>); });
  load_lean_unpack<LeanCopy>();
  load_lean_unpack<LeanCast<float, Float16>>();
  load_lean_unpack<LeanCast<float, Bfloat16>>();
}

}  // namespace tnt::gpu
