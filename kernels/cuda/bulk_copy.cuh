// Bulk copies from global to shared memory (cp.async.bulk, compute capability 9.0 and newer): one thread starts a copy of up to
// a tile, which needs no registers, and a barrier in shared memory completes a phase when its bytes are there. All addresses
// and sizes are multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12)
#define TNT_HAS_BULK_COPIES 1
#else
#define TNT_HAS_BULK_COPIES 0
#endif

#if TNT_HAS_BULK_COPIES

namespace tnt::gpu {

using Barrier = std::uint64_t;  // in shared memory

#if defined(__CUDA_ARCH__)

__device__ __forceinline__ std::uint32_t shared_address(const void* address) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}

// By the thread that starts the copies, before the others wait for the block.
__device__ __forceinline__ void init_barriers(Barrier* barriers, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barriers + i)) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");  // bulk copies see them
}

// Starts the next phase: it completes when `bytes` have arrived, at once if there are none.
__device__ __forceinline__ void start_copy(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  const std::uint32_t at = shared_address(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(bytes) : "memory");
  if (bytes == 0) return;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at)
               : "memory");
}

// Waits until the phase of this parity has completed: 0 for the first, then 1, 0, ...
__device__ __forceinline__ void wait_for_copy(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t complete = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (complete == 0);
}

#else

inline void init_barriers(Barrier* barriers, std::uint32_t n) { ::simt::init_barriers(barriers, n); }
inline void start_copy(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  ::simt::start_copy(to, from, bytes, barrier);
}
inline void wait_for_copy(Barrier* barrier, std::uint32_t parity) { ::simt::wait_for_copy(barrier, parity); }

#endif

}  // namespace tnt::gpu

#endif
