#include "kernels/cuda/chunks.cuh"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

template <typename T>
__global__ void __launch_bounds__(threads) axpy_kernel(std::byte* y, const std::byte* x, double a, std::uint64_t count) {
  StatisticsAccumulator nothing(false);
  for_each_chunk<T>(count, [&](std::uint64_t first, std::uint32_t length) {
    transform<T, T>(y + first * sizeof(T), x + first * sizeof(T), length, Axpy<T>{a}, nothing);
  });
}

}  // namespace

void axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype, Stream stream) {
  if (count == 0 || a == 0.0) return;
  dispatch_wire(dtype, [&](auto element) {
    using T = decltype(element);
    TNT_LAUNCH(blocks_for(chunks_of<T>(count), 0), stream, axpy_kernel<T>, static_cast<std::byte*>(y),
               static_cast<const std::byte*>(x), a, count);
  });
}

}  // namespace tnt::gpu
