#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/host_side.hpp"
#include "kernels/cuda/lean_ring.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

// A tensor that is already in the bucket is only read for its statistics and written back unchanged.
template <typename Wire>
__device__ void pack_tile(const Tile& tile, const TensorSide& tensor, std::byte* to, tnt_dtype_t wire,
                          StatisticsAccumulator& stats) {
  if (tensor.scale == 0.0) return fill_zero(to, std::size_t{tile.count} * sizeof(Wire));
  const bool in_bucket = tensor.address == nullptr;
  if (in_bucket && !stats.enabled()) return;
  dispatch_tensor<Wire>(in_bucket ? static_cast<std::uint32_t>(wire) : tile.dtype, [&](auto element) {
    using From = decltype(element);
    const auto* from = in_bucket ? to : tensor.address + tile.first * sizeof(From);
    transform<Wire, From>(to, from, tile.count, Scale<Wire, From>(in_bucket ? 1.0 : tensor.scale), stats);
  });
}

template <typename Wire>
__global__ void __launch_bounds__(threads, 4)
    pack_kernel(TNT_PARAMETER(KernelArguments<few_tensors>) arguments, tnt_dtype_t wire) {
  for (std::uint32_t i = blockIdx.x; i < arguments.n_tiles; i += gridDim.x) {
    const Tile tile = load_tile(arguments.tiles + i);
    auto* to = arguments.bucket + tile.slot * sizeof(Wire);
    StatisticsAccumulator stats(arguments.statistics != nullptr);
    pack_tile<Wire>(tile, arguments.of(tile), to, wire, stats);
    fill_zero(to + std::size_t{tile.count} * sizeof(Wire), std::size_t{tile.padding} * sizeof(Wire));
    stats.write_total(arguments.statistics, i);
  }
}

void pack_any(const BucketLaunch& launch, Stream stream) {
  for_each_part<few_tensors>(launch, Direction::pack, [&](const auto& arguments) {
    const unsigned blocks = blocks_for(arguments.n_tiles, launch.max_ctas);
    dispatch_wire(launch.wire,
                  [&](auto element) { TNT_LAUNCH(blocks, stream, pack_kernel<decltype(element)>, arguments, launch.wire); });
  });
}

// bytes: of an element.
template <typename Move>
void pack_lean(const BucketLaunch& launch, std::uint32_t bytes, Stream stream) {
  if (is_limited(launch)) return launch_ring<Move, Direction::pack>(launch, bytes, stream);
  with_capacity_that_fits(launch, Direction::pack, [&](const auto& arguments) {
    TNT_LAUNCH(arguments.n_tiles, stream, (lean_pack_kernel<Move, std::decay_t<decltype(arguments)>::capacity>), arguments,
               bytes);
  });
}

// The pairs of types of kernel_of.
void pack_lean_cast(const BucketLaunch& launch, Stream stream) {
  if (launch.wire == TNT_FLOAT32) return pack_lean<LeanCast<float, float>>(launch, 0, stream);
  dispatch_half(launch.wire, [&](auto half) {
    using Half = decltype(half);
    if (launch.dtype == launch.wire) return pack_lean<LeanCast<Half, Half>>(launch, 0, stream);
    pack_lean<LeanCast<Half, float>>(launch, 0, stream);
  });
}

template <typename Move>
void load_lean_pack() {
  TNT_LOAD((lean_pack_kernel<Move, few_tensors>));
  if (has_bulk_copies()) TNT_LOAD((lean_ring_kernel<Move, Direction::pack>));
  if (max_tensors_per_launch() > few_tensors) TNT_LOAD((lean_pack_kernel<Move, max_capacity>));
}

}  // namespace

void pack(const BucketLaunch& launch, Stream stream) {
  switch (kernel_of(launch, Direction::pack)) {
    case KernelKind::copy: return pack_lean<LeanCopy>(launch, bytes_of(launch.wire), stream);
    case KernelKind::cast: return pack_lean_cast(launch, stream);
    case KernelKind::general: return pack_any(launch, stream);
  }
}

void load_pack() {
  for_each_dtype([](auto element) { TNT_LOAD(pack_kernel<decltype(element)>); });
  load_lean_pack<LeanCopy>();
  load_lean_pack<LeanCast<float, float>>();
  load_lean_pack<LeanCast<Float16, Float16>>();
  load_lean_pack<LeanCast<Bfloat16, Bfloat16>>();
  load_lean_pack<LeanCast<Float16, float>>();
  load_lean_pack<LeanCast<Bfloat16, float>>();
}

}  // namespace tnt::gpu
