#include "kernels/cuda/cuda_call.hpp"

#include <string>
#include <string_view>

#include "common/error.hpp"

namespace tnt {
namespace {

std::string advice(cudaError_t code) {
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

}  // namespace

void fail_cuda(cudaError_t code, const char* tried, const char* file, int line) {
  static_cast<void>(cudaGetLastError());
  const std::string_view path = file;
  fail(TNT_SYSTEM, "{} failed at {}:{}: {} ({}){}", tried, path.substr(path.rfind('/') + 1), line, cudaGetErrorString(code),
       cudaGetErrorName(code), advice(code));
}

}  // namespace tnt
