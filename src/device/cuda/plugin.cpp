// The entry of libtarantella_cuda.so.
#include "device/cuda_plugin.hpp"

#include "device/cuda/cuda_device.hpp"

namespace tnt {
namespace {

int count(std::string* why_none) { return count_cuda_devices(*why_none); }

Device* open(int index, tnt_status_t* status, std::string* message) {
  try {
    return new CudaDevice(index);
  } catch (const Error& error) {
    *status = error.status();
    *message = error.what();
  } catch (const std::exception& error) {
    *status = TNT_SYSTEM;
    *message = error.what();
  }
  return nullptr;
}

constexpr CudaPlugin plugin{TNT_VERSION_TEXT, count, open};

}  // namespace
}  // namespace tnt

extern "C" TNT_EXPORT const tnt::CudaPlugin* tnt_cuda_plugin() { return &tnt::plugin; }
