// The devices of this machine, by libtarantella_cuda.so, which is loaded when somebody first asks. Where it, the driver or a
// GPU is missing everything else works: there are no devices then, and one message says why.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/device.hpp"

namespace tnt {

// How many devices this process can use. If none, the log says why, once (level info).
[[nodiscard]] int device_count();

// Why there are none: a message without its full stop; empty if there are some.
[[nodiscard]] const std::string& why_no_device();

// The same device for the same index as long as somebody has it. Throws TNT_UNSUPPORTED with the reason if there are no
// devices, TNT_INVALID_ARGUMENT for an index that is none.
[[nodiscard]] std::shared_ptr<Device> open_device(int index);

// Other devices in place of the machine's, for tests; none: the machine's again.
struct DeviceSource {
  int count = 0;
  std::string why_none;
  std::function<std::shared_ptr<Device>(int index)> open;
};
void set_device_source_for_tests(const DeviceSource* source);

}  // namespace tnt
