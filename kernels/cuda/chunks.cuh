// Cuts an array into chunks, which the thread blocks take in turn.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace tnt::gpu {

// 4 vectors of 16 bytes for each thread.
template <typename T>
inline constexpr std::uint64_t chunk = std::uint64_t{4} * threads * 16 / sizeof(T);

template <typename T>
[[nodiscard]] std::uint64_t chunks_of(std::uint64_t count) {
  return count / chunk<T> + (count % chunk<T> != 0 ? 1 : 0);
}

// Calls f(first element, elements) for each chunk of this block.
template <typename T, typename F>
__device__ __forceinline__ void for_each_chunk(std::uint64_t count, const F& f) {
  for (std::uint64_t i = blockIdx.x; i * chunk<T> < count; i += gridDim.x) {
    const std::uint64_t left = count - i * chunk<T>;
    f(i * chunk<T>, static_cast<std::uint32_t>(left < chunk<T> ? left : chunk<T>));
  }
}

}  // namespace tnt::gpu
