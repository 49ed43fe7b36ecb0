// Ranges of the NVTX domain "Tarantella". NVTX is a header of the CUDA toolkit; it loads what a profiler has put into the
// environment (NVTX_INJECTION64_PATH), else its calls return at once.
#include "device/cuda/cuda_device.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace tnt {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("Tarantella");
  return made;
}

}  // namespace

void CudaDevice::begin_range(const char* name) noexcept {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &attributes);
}

void CudaDevice::end_range() noexcept { nvtxDomainRangePop(domain()); }

}  // namespace tnt

#else

namespace tnt {

void CudaDevice::begin_range(const char* /*name*/) noexcept {}
void CudaDevice::end_range() noexcept {}

}  // namespace tnt

#endif
