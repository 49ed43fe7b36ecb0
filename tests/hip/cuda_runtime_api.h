// HIP under the names of CUDA that the kernels' sources use, so that hipcc checks those sources as they are. Included before
// them.
#pragma once

#include <hip/hip_runtime.h>

#include <cstddef>

#define __CUDACC__ 1
#define CUDART_VERSION 0   // none: no large parameters, no bulk copies
#define __grid_constant__  // parameters are copied to a thread's memory where they are indexed at run time
#define __trap __builtin_trap
#define __shfl_down_sync(mask, value, delta) __shfl_down(value, delta)

#define cudaDriverGetVersion hipDriverGetVersion
#define cudaError_t hipError_t
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaFuncAttributes hipFuncAttributes
#define cudaFuncGetAttributes hipFuncGetAttributes
#define cudaGetDevice hipGetDevice
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  hipStream_t stream;
};

template <typename... Parameters, typename... Arguments>
hipError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  kernel<<<config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream>>>(arguments...);
  return hipGetLastError();
}

template <typename... Parameters>
hipError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), hipFuncAttribute attribute, int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
