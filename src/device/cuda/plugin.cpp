// The entry of libtarantella_cuda.so.
#include "device/device_plugin.hpp"

#include "base/plugin.hpp"
#include "device/cuda/cuda_device.hpp"

namespace tnt {
namespace {

int count(std::string* why_none) { return count_cuda_devices(*why_none); }

Device* open(int index, tnt_status_t* status, std::string* message) {
  return without_throwing<Device*>(nullptr, status, message, [&] { return new CudaDevice(index); });
}

int device_of(StreamHandle stream, tnt_status_t* status, std::string* message) {
  return without_throwing(-1, status, message, [&] { return device_of_stream(static_cast<cudaStream_t>(stream)); });
}

constexpr DevicePlugin plugin{TNT_VERSION_TEXT, count, open, device_of};

}  // namespace
}  // namespace tnt

extern "C" TNT_EXPORT const tnt::DevicePlugin* tnt_device_plugin() { return &tnt::plugin; }
