// The devices of this machine, from libtarantella_cuda.so or libtarantella_hip.so, which are loaded on first use. Without them,
// a driver or a GPU, everything else still works: there are no devices, and one message gives the reason.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/device.hpp"

namespace tnt {

// The number of devices that this process can use. If there are none, the log gives the reason once (level info).
[[nodiscard]] int device_count();

// The reason if there are no devices, else ""; without a full stop.
[[nodiscard]] const std::string& why_no_device();

// Returns the same object for the same index while somebody holds it. Throws TNT_UNSUPPORTED with the reason if there are no
// devices, TNT_INVALID_ARGUMENT for an invalid index.
[[nodiscard]] std::shared_ptr<Device> open_device(int index);

// The index of the stream's device, which is not opened; of a default stream, for the calling thread. Throws TNT_UNSUPPORTED
// with the reason if there are no devices.
[[nodiscard]] int device_of_stream(StreamHandle stream);

// Replaces the machine's devices in tests; nullptr restores them.
struct DeviceSource {
  int count = 0;
  std::string why_none;
  std::function<std::shared_ptr<Device>(int index)> open;
  std::function<int(StreamHandle stream)> device_of = {};
};
void set_device_source_for_tests(const DeviceSource* source);

// All devices are of one vendor: NVIDIA's if there are any, and a warning if there are AMD's, too. If there are none, both
// reasons.
[[nodiscard]] DeviceSource chosen_devices(DeviceSource nvidia, DeviceSource amd);

}  // namespace tnt
