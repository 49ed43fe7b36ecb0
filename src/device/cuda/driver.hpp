// The functions of the CUDA driver that the runtime has no counterpart of. The driver is not linked, because the plug-in must
// load without one.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace tnt {

struct Driver {
  CUresult (*Init)(unsigned int flags);
  CUresult (*DeviceGet)(CUdevice* device, int ordinal);
  CUresult (*DevicePrimaryCtxRetain)(CUcontext* context, CUdevice device);
  CUresult (*DevicePrimaryCtxRelease)(CUdevice device);
  CUresult (*DevicePrimaryCtxGetState)(CUdevice device, unsigned int* flags, int* active);
  CUresult (*CtxGetCurrent)(CUcontext* context);
  CUresult (*CtxPushCurrent)(CUcontext context);
  CUresult (*CtxPopCurrent)(CUcontext* context);
  CUresult (*CtxGetDevice)(CUdevice* device);
  CUresult (*StreamGetCtx)(CUstream stream, CUcontext* context);
};

// Throws TNT_UNSUPPORTED if the driver lacks one of them.
[[nodiscard]] const Driver& driver();

// Throws TNT_SYSTEM unless the result is a success. what: "cuCtxPushCurrent"
void check_driver(CUresult result, const char* what);

}  // namespace tnt
