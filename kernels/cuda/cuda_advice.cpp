#include "kernels/cuda/cuda_advice.hpp"

#include "common/error.hpp"

namespace tnt {

std::string cuda_advice(cudaError_t code) {
  switch (code) {
    case cudaErrorNoKernelImageForDevice:
      return ": this build has no kernels for this GPU: build it with the GPU's architecture in TNT_CUDA_ARCHITECTURES";
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
      return fmt::format(": the driver is older than CUDA {}.{}, with which this was built: install a newer driver",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    default: return "";
  }
}

}  // namespace tnt
