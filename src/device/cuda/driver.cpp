#include "device/cuda/driver.hpp"

#include "common/error.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt {
namespace {

template <typename Function>
void find(Function*& function, const char* name) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  constexpr unsigned int version = 11000;  // of the functions' signatures
  cudaDriverEntryPointQueryResult answer{};
  TNT_CUDA(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer));
#else
  TNT_CUDA(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault));
#endif
  if (found == nullptr) fail(TNT_UNSUPPORTED, "the NVIDIA driver has no {}: install a newer one", name);
  function = reinterpret_cast<Function*>(found);
}

Driver find_all() {
  Driver found{};
#define TNT_FIND(name) find(found.name, "cu" #name)
  TNT_FIND(Init);
  TNT_FIND(DeviceGet);
  TNT_FIND(DevicePrimaryCtxRetain);
  TNT_FIND(DevicePrimaryCtxRelease);
  TNT_FIND(DevicePrimaryCtxGetState);
  TNT_FIND(CtxGetCurrent);
  TNT_FIND(CtxPushCurrent);
  TNT_FIND(CtxPopCurrent);
  TNT_FIND(CtxGetDevice);
  TNT_FIND(StreamGetCtx);
#undef TNT_FIND
  check_driver(found.Init(0), "cuInit");
  return found;
}

}  // namespace

const Driver& driver() {
  static const Driver found = find_all();
  return found;
}

void check_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) fail(TNT_SYSTEM, "{} of the NVIDIA driver failed: error {}", what, static_cast<int>(result));
}

}  // namespace tnt
