// The one symbol of libtarantella_cuda.so and libtarantella_hip.so, for the library that loads them.
#pragma once

#include <string>

#include "common/error.hpp"
#include "device/device.hpp"

namespace tnt {

inline constexpr const char* device_plugin_symbol = "tnt_device_plugin";

// Library and plug-in are built together; a plug-in of another version is rejected before any other use.
struct DevicePlugin {
  const char* version;  // of the library
  // The number of devices that this process can use; 0 with the reason in *why_none.
  int (*count)(std::string* why_none);
  // Returns a new device, owned by the caller, or nullptr with the reason in *status and *message.
  Device* (*open)(int index, tnt_status_t* status, std::string* message);
  // The index of the stream's device, which need not be open; -1 with the reason in *status and *message.
  int (*device_of)(StreamHandle stream, tnt_status_t* status, std::string* message);
};

}  // namespace tnt
