// The device of a stream: from the runtime since CUDA 12.8, before that from the driver through the stream's context.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.hpp"
#include "kernels/cuda/cuda_call.hpp"

#if CUDART_VERSION < 12080
#include <cuda.h>
#endif

namespace tnt {

#if CUDART_VERSION >= 12080

[[nodiscard]] inline int device_of_stream(cudaStream_t stream) {
  int device = -1;
  TNT_CUDA(cudaStreamGetDevice(stream, &device));
  return device;
}

#else

// The driver is not linked, because the plug-in must load without one.
template <typename Function>
[[nodiscard]] Function driver_function(const char* name) {
  void* function = nullptr;
  TNT_CUDA(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault));
  if (function == nullptr) fail(TNT_UNSUPPORTED, "the NVIDIA driver has no {}: install a newer one", name);
  return reinterpret_cast<Function>(function);
}

[[nodiscard]] inline int device_of_stream(cudaStream_t stream) {
  static const auto get_context = driver_function<CUresult (*)(CUstream, CUcontext*)>("cuStreamGetCtx");
  static const auto push = driver_function<CUresult (*)(CUcontext)>("cuCtxPushCurrent");
  static const auto pop = driver_function<CUresult (*)(CUcontext*)>("cuCtxPopCurrent");
  static const auto get_device = driver_function<CUresult (*)(CUdevice*)>("cuCtxGetDevice");
  CUcontext context = nullptr;
  CUdevice device = -1;
  CUresult result = get_context(stream, &context);
  if (result == CUDA_SUCCESS) result = push(context);
  if (result == CUDA_SUCCESS) {
    result = get_device(&device);
    pop(&context);
  }
  if (result != CUDA_SUCCESS) {
    fail(TNT_SYSTEM, "the driver does not say which device a stream belongs to: error {}", static_cast<int>(result));
  }
  return device;
}

#endif

}  // namespace tnt
