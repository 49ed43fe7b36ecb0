#include "device/cuda/stream_device.hpp"

#include <optional>

#include "common/error.hpp"
#include "device/cuda/guards.hpp"
#include "device/device.hpp"

namespace tnt {
namespace {

// The driver answers threads that have a context. Any context will do, so a thread without one takes one that exists.
void borrow_context(std::optional<PrimaryContext>& context, std::optional<ContextGuard>& current) {
  CUcontext own = nullptr;
  check_driver(driver().CtxGetCurrent(&own), "cuCtxGetCurrent");
  if (own != nullptr) return;
  int count = 0;
  TNT_CUDA(cudaGetDeviceCount(&count));
  for (int index = 0; index < count; ++index) {
    CUdevice device = 0;
    unsigned int flags = 0;
    int active = 0;
    check_driver(driver().DeviceGet(&device, index), "cuDeviceGet");
    check_driver(driver().DevicePrimaryCtxGetState(device, &flags, &active), "cuDevicePrimaryCtxGetState");
    if (active == 0) continue;
    current.emplace(context.emplace(index));
    return;
  }
  fail(TNT_INVALID_ARGUMENT, "the stream is of no device: this process has used none");
}

}  // namespace

int device_of_stream(cudaStream_t stream) {
  int device = -1;
  if (is_default_stream(stream)) {
    TNT_CUDA(cudaGetDevice(&device));
    return device;
  }
  std::optional<PrimaryContext> context;
  std::optional<ContextGuard> current;
  borrow_context(context, current);
  CUcontext of_stream = nullptr;
  check_driver(driver().StreamGetCtx(stream, &of_stream), "cuStreamGetCtx");
  const ContextGuard pushed(of_stream);
  check_driver(driver().CtxGetDevice(&device), "cuCtxGetDevice");
  return device;
}

}  // namespace tnt
