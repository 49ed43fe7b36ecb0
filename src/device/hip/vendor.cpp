// What the device says of AMD's driver.
#include <string>

#include "common/error.hpp"
#include "device/cuda/cuda_device.hpp"

namespace tnt {

Vendor CudaDevice::vendor() const noexcept { return Vendor::amd; }

int count_cuda_devices(std::string& why_none) {
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  if (error == hipSuccess && count > 0) return count;
  if (error == hipSuccess || error == hipErrorNoDevice) {
    why_none = "AMD's runtime (HIP) shows no GPU to this process (the driver amdgpu with /dev/kfd, HIP_VISIBLE_DEVICES?)";
  } else {
    why_none = fmt::format("AMD's runtime (HIP) does not work: {}", hipGetErrorString(error));
  }
  return 0;
}

}  // namespace tnt
