#include "common/error.hpp"
#include "kernels/cuda/cuda_advice.hpp"

namespace tnt {

std::string cuda_advice(cudaError_t code) {
  switch (code) {
    case hipErrorNoBinaryForGpu:
    case hipErrorInvalidDeviceFunction:
    case hipErrorInvalidKernelFile:
      return ": this build may have no kernels for this GPU: build it with the GPU's architecture in TNT_HIP_ARCHITECTURES";
    case hipErrorInsufficientDriver: return ": the driver is too old for this HIP: install a newer one";
    case hipErrorNotSupported:
      return fmt::format(": HIP {}.{}, with which this was built, does not have it: build it with a newer ROCm",
                         HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
    default: return "";
  }
}

}  // namespace tnt
