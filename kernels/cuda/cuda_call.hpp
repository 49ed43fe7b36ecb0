// The check of every call of the CUDA runtime: its error becomes ours, with the place, what was tried and CUDA's own words.
// Light: .cu files include it, and are parsed once for every architecture.
#pragma once

#include <cuda_runtime_api.h>

namespace tnt {

// Throws TNT_SYSTEM: "cudaStreamCreate(&stream) failed at streams.cpp:12: out of memory (cudaErrorMemoryAllocation)", and takes
// the error from CUDA's own record of the thread's last one, where the next check would find it again.
[[noreturn]] void fail_cuda(cudaError_t code, const char* tried, const char* file, int line);

}  // namespace tnt

// TNT_CUDA(cudaStreamCreate(&stream))
#define TNT_CUDA(call)                                                                            \
  do {                                                                                            \
    const cudaError_t tnt_cuda_code = (call);                                                     \
    if (tnt_cuda_code != cudaSuccess) ::tnt::fail_cuda(tnt_cuda_code, #call, __FILE__, __LINE__); \
  } while (false)
