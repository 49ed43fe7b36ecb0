// What CUDA keeps for each thread, changed for a while: which device is current, and what a stream capture of any thread
// forbids to this one.
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
    if (before_ != now_) cudaSetDevice(before_);  // it was current: nothing in it can fail for the first time
  }

 private:
  int before_ = 0;
  int now_;
};

// While some thread captures a stream in CUDA's global mode, other threads may not even look at an event: it would end that
// capture with an error. What is asked here has nothing to do with captured work.
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
