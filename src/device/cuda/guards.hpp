// Guards for CUDA state that each thread has: the current context and the stream capture mode.
#pragma once

#include <cuda_runtime_api.h>

#include "common/non_copyable.hpp"
#include "device/cuda/driver.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt {

// A device's primary context, which the CUDA runtimes of the process share.
class PrimaryContext : NonCopyable {
 public:
  explicit PrimaryContext(int index) {
    check_driver(driver().DeviceGet(&device_, index), "cuDeviceGet");
    check_driver(driver().DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  }
  ~PrimaryContext() { (void)driver().DevicePrimaryCtxRelease(device_); }
  [[nodiscard]] CUcontext get() const noexcept { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// Makes a context the thread's current one. Leaves the current device as it is: to restore it by cudaSetDevice would create a
// context on it, which is device 0 for a thread that has never used a device.
class ContextGuard : NonCopyable {
 public:
  explicit ContextGuard(CUcontext context) {
    CUcontext current = nullptr;
    check_driver(driver().CtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == context) return;
    check_driver(driver().CtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  explicit ContextGuard(const PrimaryContext& context) : ContextGuard(context.get()) {}
  ~ContextGuard() {
    CUcontext popped = nullptr;
    if (pushed_) (void)driver().CtxPopCurrent(&popped);  // it was pushed, so this cannot fail
  }

 private:
  bool pushed_ = false;
};

// While a thread captures a stream in CUDA's global mode, other threads may not even query an event: it would fail the capture.
// Calls under this guard have nothing to do with captured work.
class RelaxedCaptureGuard : NonCopyable {
 public:
  RelaxedCaptureGuard() { TNT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCaptureGuard() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tnt
