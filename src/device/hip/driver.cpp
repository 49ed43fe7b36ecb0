// The driver's functions over HIP, where a thread has a current device and no current context. Setting it creates nothing on
// it, unlike CUDA.
#include "device/cuda/driver.hpp"

#include <cstdint>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

CUcontext context_of(int device) {
  const auto number = static_cast<std::intptr_t>(device) + 1;
  return reinterpret_cast<CUcontext>(number);  // NOLINT(performance-no-int-to-ptr): never followed
}
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::intptr_t>(context) - 1); }

std::vector<int>& pushed() {
  thread_local std::vector<int> devices;  // those to return to
  return devices;
}

CUresult current(CUcontext* context) {
  int device = 0;
  const CUresult result = hipGetDevice(&device);
  *context = context_of(device);
  return result;
}

CUresult push(CUcontext context) {
  int device = 0;
  CUresult result = hipGetDevice(&device);
  if (result == hipSuccess) result = hipSetDevice(device_of(context));
  if (result == hipSuccess) pushed().push_back(device);
  return result;
}

CUresult pop(CUcontext* context) {
  const CUresult result = current(context);
  const CUresult restored = hipSetDevice(pushed().back());
  pushed().pop_back();
  return result == hipSuccess ? restored : result;
}

CUresult device_get(CUdevice* device, int ordinal) {
  int count = 0;
  const CUresult result = hipGetDeviceCount(&count);
  *device = ordinal;
  return result == hipSuccess && ordinal >= count ? hipErrorInvalidDevice : result;
}

CUresult retain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return hipSuccess;
}

CUresult release(CUdevice /*device*/) { return hipSuccess; }

CUresult state(CUdevice /*device*/, unsigned int* flags, int* active) {
  *flags = 0;
  *active = 1;
  return hipSuccess;
}

CUresult context_of_stream(CUstream stream, CUcontext* context) {
  const int device = hipGetStreamDeviceId(stream);
  *context = context_of(device);
  return device < 0 ? hipErrorInvalidHandle : hipSuccess;
}

constexpr Driver over_hip{.Init = hipInit,
                          .DeviceGet = device_get,
                          .DevicePrimaryCtxRetain = retain,
                          .DevicePrimaryCtxRelease = release,
                          .DevicePrimaryCtxGetState = state,
                          .CtxGetCurrent = current,
                          .CtxPushCurrent = push,
                          .CtxPopCurrent = pop,
                          .CtxGetDevice = hipGetDevice,
                          .StreamGetCtx = context_of_stream};

}  // namespace

const Driver& driver() { return over_hip; }

void check_driver(CUresult result, const char* what) {
  if (result != hipSuccess) fail(TNT_SYSTEM, "HIP, for {}, failed: {}", what, hipGetErrorString(result));
}

}  // namespace tnt
