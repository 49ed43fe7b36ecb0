// Adds a reduced bucket to main gradients in float32, as trainers keep them whose gradients are computed in 16 bits.
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/host_side.hpp"
#include "kernels/cuda/kernel_arguments.cuh"
#include "kernels/cuda/lean.cuh"

namespace tnt::gpu {
namespace {

// The bytes of a thread's loads are 16 of the sums and as many elements of the bucket, two of each in flight.
template <typename Wire>
__device__ __forceinline__ void add_units(float* sums, const Wire* from, std::uint32_t units) {
  constexpr std::uint32_t batch = 2;
  constexpr unsigned elements = Unit<float, Wire>::elements;
  using In = Vector<Unit<float, Wire>::from_bytes>;
  using Sum = Vector<Unit<float, Wire>::to_bytes>;
  const auto* in = reinterpret_cast<const In*>(from);
  auto* sum = reinterpret_cast<Sum*>(sums);
  for (std::uint32_t first = threadIdx.x; first < units; first += batch * threads) {
    In terms[batch];
    Sum old[batch];
    TNT_UNROLL
    for (std::uint32_t i = 0; i < batch; ++i) {
      if (first + i * threads >= units) continue;
      terms[i] = load_once(in + first + i * threads);
      old[i] = load_once(sum + first + i * threads);
    }
    TNT_UNROLL
    for (std::uint32_t i = 0; i < batch; ++i) {
      if (first + i * threads >= units) continue;
      Wire term[elements];
      float result[elements];
      std::memcpy(term, &terms[i], sizeof(term));
      std::memcpy(result, &old[i], sizeof(result));
      TNT_UNROLL
      for (unsigned k = 0; k < elements; ++k) result[k] += Accumulator<Wire>::load(term[k]);
      std::memcpy(&old[i], result, sizeof(result));
      store(sum + first + i * threads, old[i]);
    }
  }
}

// Slots are aligned to 16 bytes; the caller's sums may lie anywhere.
template <typename Wire>
__device__ __forceinline__ void add_tile(std::byte* to, const std::byte* from, std::uint32_t count) {
  constexpr unsigned elements = Unit<float, Wire>::elements;
  const bool aligned = misalignment(to, sizeof(float) * elements) == 0;
  const std::uint32_t units = aligned ? count / elements : 0;
  add_units<Wire>(reinterpret_cast<float*>(to), reinterpret_cast<const Wire*>(from), units);
  TNT_NO_UNROLL
  for (std::uint32_t i = units * elements + threadIdx.x; i < count; i += threads) {
    std::byte* const at = to + std::size_t{i} * sizeof(float);
    store_element(at,
                  load_element<float>(at) + Accumulator<Wire>::load(load_element<Wire>(from + std::size_t{i} * sizeof(Wire))));
  }
}

template <typename Wire>
__global__ void __launch_bounds__(threads, resident_blocks(6))
    accumulate_kernel(TNT_PARAMETER(KernelArguments<few_tensors>) arguments) {
  TNT_NO_UNROLL
  for (std::uint32_t i = blockIdx.x; i < arguments.n_tiles; i += gridDim.x) {
    const Tile tile = load_tile(arguments.tiles + i);
    std::byte* const out = arguments.of(tile).address;
    if (out == nullptr) continue;
    add_tile<Wire>(out + tile.first * sizeof(float), arguments.bucket + tile.slot * sizeof(Wire), tile.count);
  }
}

// Calls f with an element of a wire type in which gradients travel.
template <typename F>
void dispatch_gradient(tnt_dtype_t wire, const F& f) {
  if (wire == TNT_FLOAT32) return f(float{});
  if (wire == TNT_FLOAT8_E4M3) return f(Float8E4m3{});
  if (wire == TNT_FLOAT8_E5M2) return f(Float8E5m2{});
  dispatch_half(wire, f);
}

}  // namespace

void accumulate(const BucketLaunch& launch, Stream stream) {
  for_each_part<few_tensors>(launch, Direction::unpack, [&](const auto& arguments) {
    const unsigned blocks = blocks_for(arguments.n_tiles, launch.max_ctas);
    dispatch_gradient(launch.wire,
                      [&](auto element) { TNT_LAUNCH(blocks, stream, accumulate_kernel<decltype(element)>, arguments); });
  });
}

void load_accumulate() {
  TNT_LOAD(accumulate_kernel<float>);
  TNT_LOAD(accumulate_kernel<Float16>);
  TNT_LOAD(accumulate_kernel<Bfloat16>);
  TNT_LOAD(accumulate_kernel<Float8E4m3>);
  TNT_LOAD(accumulate_kernel<Float8E5m2>);
}

}  // namespace tnt::gpu
