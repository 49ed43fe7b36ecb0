// Launches a kernel, under nvcc and under the tests' compiler for the CPU. Under nvcc the kernel goes to a stream; in the tests
// (tests/simt) all blocks run before the launch returns.
#pragma once

#include "kernels/cuda/bucket_kernels.hpp"

#ifdef __CUDACC__

#include "kernels/cuda/cuda_call.hpp"

#define TNT_UNROLL _Pragma("unroll")
#define TNT_NO_UNROLL _Pragma("unroll 1")
#define TNT_AT(address) (*(address))
// A kernel's parameter that threads read where it lies, in constant memory, also at an index that is known at run time only.
#define TNT_PARAMETER(...) const __grid_constant__ __VA_ARGS__
// TNT_LAUNCH(blocks, stream, kernel, arguments...): throws TNT_SYSTEM that names the kernel. It checks the result of this
// launch only, not an error that an earlier call left behind. It neither allocates nor waits.
#define TNT_LAUNCH(blocks, stream, kernel, ...) TNT_LAUNCH_SHARED(blocks, 0, stream, kernel, __VA_ARGS__)
// The same with bytes of dynamic shared memory, also more than the 48 KiB that need no permission.
#define TNT_LAUNCH_SHARED(blocks, bytes, stream, kernel, ...)                                              \
  do {                                                                                                     \
    cudaLaunchConfig_t tnt_config = {};                                                                    \
    tnt_config.gridDim = dim3(blocks);                                                                     \
    tnt_config.blockDim = dim3(::tnt::gpu::threads);                                                       \
    tnt_config.dynamicSmemBytes = bytes;                                                                   \
    tnt_config.stream = static_cast<cudaStream_t>(stream);                                                 \
    if (tnt_config.dynamicSmemBytes > 0)                                                                   \
      TNT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,                   \
                                    static_cast<int>(tnt_config.dynamicSmemBytes)));                       \
    const cudaError_t tnt_code = cudaLaunchKernelEx(&tnt_config, kernel, __VA_ARGS__);                     \
    if (tnt_code != cudaSuccess) ::tnt::fail_cuda(tnt_code, "the launch of " #kernel, __FILE__, __LINE__); \
  } while (false)
#define TNT_DYNAMIC_SHARED(name, bytes) extern __shared__ __align__(128) std::byte name[]
// Loads a kernel, which CUDA does only when it is first launched otherwise; that may wait for all work on the device.
#define TNT_LOAD(kernel)                                                                     \
  do {                                                                                       \
    cudaFuncAttributes tnt_attributes;                                                       \
    TNT_CUDA(cudaFuncGetAttributes(&tnt_attributes, reinterpret_cast<const void*>(kernel))); \
  } while (false)

#else

#include "simt/simt.hpp"

#define TNT_UNROLL
#define TNT_NO_UNROLL
#define TNT_PARAMETER(...) const __VA_ARGS__&
#define TNT_LOAD(kernel) static_cast<void>(kernel)
#define TNT_AT(address) (::simt::checked(address))  // ends the test on a misaligned access, as a GPU does
#define TNT_LAUNCH(blocks, stream, kernel, ...) \
  (static_cast<void>(stream), ::simt::run(#kernel, blocks, ::tnt::gpu::threads, [&] { (kernel)(__VA_ARGS__); }))
#define TNT_LAUNCH_SHARED(blocks, bytes, stream, kernel, ...) TNT_LAUNCH(blocks, stream, kernel, __VA_ARGS__)
#define TNT_DYNAMIC_SHARED(name, bytes) alignas(128) static thread_local std::byte name[bytes]

#endif

namespace tnt::gpu {

inline constexpr unsigned threads = 256;  // of every block

// As many of these blocks as the threads of one multiprocessor allow, for __launch_bounds__.
constexpr int resident_blocks(int wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
  constexpr int possible = 1024 / threads;
#elif defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ / 10 == 86 || __CUDA_ARCH__ / 10 == 87 || __CUDA_ARCH__ / 10 == 89 || __CUDA_ARCH__ >= 1200)
  constexpr int possible = 1536 / threads;
#else
  constexpr int possible = 2048 / threads;
#endif
  return wanted < possible ? wanted : possible;
}

// The number of blocks for n pieces of work, which blocks take in turn.
inline unsigned blocks_for(std::uint64_t n, std::uint32_t max_ctas) {
  constexpr std::uint64_t most = 0x7fffffff;  // CUDA's limit
  const std::uint64_t limit = max_ctas == 0 ? most : max_ctas;
  return static_cast<unsigned>(n < limit ? n : limit);
}

}  // namespace tnt::gpu
