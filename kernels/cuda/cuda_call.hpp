// Checks calls of the CUDA runtime: an error becomes an exception with the place, the call and CUDA's message. Keep this header
// small: .cu files include it and are parsed once for every architecture.
#pragma once

#include <cuda_runtime_api.h>

namespace tnt {

// Throws TNT_SYSTEM: "cudaStreamCreate(&stream) failed at streams.cpp:12: out of memory (cudaErrorMemoryAllocation)". Clears
// CUDA's last error of the thread, which the next check would otherwise report again.
[[noreturn]] void fail_cuda(cudaError_t code, const char* tried, const char* file, int line);

}  // namespace tnt

// TNT_CUDA(cudaStreamCreate(&stream))
#define TNT_CUDA(call)                                                                            \
  do {                                                                                            \
    const cudaError_t tnt_cuda_code = (call);                                                     \
    if (tnt_cuda_code != cudaSuccess) ::tnt::fail_cuda(tnt_cuda_code, #call, __FILE__, __LINE__); \
  } while (false)
