// The one symbol of libtarantella_cuda.so, as the library that loads it knows it.
#pragma once

#include <string>

#include "base/error.hpp"
#include "device/device.hpp"

namespace tnt {

inline constexpr const char* cuda_plugin_symbol = "tnt_cuda_plugin";

// Both sides are built together: a plug-in of another version is refused before anything else of it is used.
struct CudaPlugin {
  const char* version;  // the library's
  // Devices that this process sees; 0 with the reason in *why_none.
  int (*count)(std::string* why_none);
  // A new device, the caller's; or nullptr with the reason in *status and *message.
  Device* (*open)(int index, tnt_status_t* status, std::string* message);
};

}  // namespace tnt
