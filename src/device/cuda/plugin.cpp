// The entry of libtarantella_cuda.so.
#include "device/cuda_plugin.hpp"

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/stream_device.hpp"

namespace tnt {
namespace {

int count(std::string* why_none) { return count_cuda_devices(*why_none); }

// Calls body; otherwise is the result if it throws.
template <typename Result, typename Body>
Result guarded(Result otherwise, tnt_status_t* status, std::string* message, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    *status = error.status();
    *message = error.what();
  } catch (const std::exception& error) {
    *status = TNT_SYSTEM;
    *message = error.what();
  }
  return otherwise;
}

Device* open(int index, tnt_status_t* status, std::string* message) {
  return guarded<Device*>(nullptr, status, message, [&] { return new CudaDevice(index); });
}

int device_of(StreamHandle stream, tnt_status_t* status, std::string* message) {
  return guarded(-1, status, message, [&] { return device_of_stream(static_cast<cudaStream_t>(stream)); });
}

constexpr CudaPlugin plugin{TNT_VERSION_TEXT, count, open, device_of};

}  // namespace
}  // namespace tnt

extern "C" TNT_EXPORT const tnt::CudaPlugin* tnt_cuda_plugin() { return &tnt::plugin; }
