// Guards for CUDA state that each thread has: the current device and the stream capture mode.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_call.hpp"

namespace tnt {

class DeviceGuard {
 public:
  explicit DeviceGuard(int index) : now_(index) {
    TNT_CUDA(cudaGetDevice(&before_));
    if (before_ != now_) TNT_CUDA(cudaSetDevice(now_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (before_ != now_) cudaSetDevice(before_);  // it was current before, so this cannot fail for the first time
  }

 private:
  int before_ = 0;
  int now_;
};

// While a thread captures a stream in CUDA's global mode, other threads may not even query an event: it would fail the capture.
// Calls under this guard have nothing to do with captured work.
class RelaxedCaptureGuard {
 public:
  RelaxedCaptureGuard() { TNT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCaptureGuard(const RelaxedCaptureGuard&) = delete;
  RelaxedCaptureGuard& operator=(const RelaxedCaptureGuard&) = delete;
  ~RelaxedCaptureGuard() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tnt
