// Launches a kernel, under nvcc and under the tests' compiler for the CPU. Under nvcc the kernel goes to a stream; in the tests
// (tests/simt) all blocks run before the launch returns.
#pragma once

#include "kernels/cuda/bucket_kernels.hpp"

#ifdef __CUDACC__

#include "kernels/cuda/cuda_call.hpp"

#define TNT_UNROLL _Pragma("unroll")
#define TNT_NO_UNROLL _Pragma("unroll 1")
#define TNT_AT(address) (*(address))
// TNT_LAUNCH(blocks, stream, kernel, arguments...): throws TNT_SYSTEM that names the kernel. It checks the result of this
// launch only, not an error that an earlier call left behind. It neither allocates nor waits.
#define TNT_LAUNCH(blocks, stream, kernel, ...)                                                            \
  do {                                                                                                     \
    cudaLaunchConfig_t tnt_config = {};                                                                    \
    tnt_config.gridDim = dim3(blocks);                                                                     \
    tnt_config.blockDim = dim3(::tnt::gpu::threads);                                                       \
    tnt_config.stream = static_cast<cudaStream_t>(stream);                                                 \
    const cudaError_t tnt_code = cudaLaunchKernelEx(&tnt_config, kernel, __VA_ARGS__);                     \
    if (tnt_code != cudaSuccess) ::tnt::fail_cuda(tnt_code, "the launch of " #kernel, __FILE__, __LINE__); \
  } while (false)

#else

#include "simt/simt.hpp"

#define TNT_UNROLL
#define TNT_NO_UNROLL
#define TNT_AT(address) (::simt::checked(address))  // ends the test on a misaligned access, as a GPU does
#define TNT_LAUNCH(blocks, stream, kernel, ...) \
  (static_cast<void>(stream), ::simt::run(#kernel, blocks, ::tnt::gpu::threads, [&] { (kernel)(__VA_ARGS__); }))

#endif

namespace tnt::gpu {

inline constexpr unsigned threads = 256;  // of every block

// The number of blocks for n pieces of work, which blocks take in turn.
inline unsigned blocks_for(std::uint64_t n, std::uint32_t max_ctas) {
  constexpr std::uint64_t most = 0x7fffffff;  // CUDA's limit
  const std::uint64_t limit = max_ctas == 0 ? most : max_ctas;
  return static_cast<unsigned>(n < limit ? n : limit);
}

}  // namespace tnt::gpu
