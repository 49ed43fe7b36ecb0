// What the CUDA device says of NVIDIA's driver.
#include <string>

#include "common/error.hpp"
#include "device/cuda/cuda_device.hpp"

namespace tnt {

Vendor CudaDevice::vendor() const noexcept { return Vendor::nvidia; }

namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string why(cudaError_t error) {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);  // 0 without a driver
  const bool old = error == cudaErrorInsufficientDriver;
  if (old && driver == 0) return "this machine has no NVIDIA driver (libcuda.so.1)";
  if (old) {
    return fmt::format("the NVIDIA driver is too old: it knows CUDA {}, Tarantella was built with {}: install a newer driver",
                       version_text(driver), version_text(CUDART_VERSION));
  }
  if (error == cudaErrorNoDevice) return "the NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?)";
  return fmt::format("the NVIDIA driver does not work: {}", cudaGetErrorString(error));
}

}  // namespace

int count_cuda_devices(std::string& why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  why_none = why(error == cudaSuccess ? cudaErrorNoDevice : error);
  return 0;
}

}  // namespace tnt
