// Checks the streams, gradients and results that a caller passes to a device reducer. Remembers what it found valid, because
// asking CUDA takes as long as the rest of a call.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "device/device.hpp"
#include "kernels/cpu/pack.hpp"
#include "reducer/plan.hpp"

namespace tnt {

// Not thread-safe. All functions throw TNT_INVALID_ARGUMENT.
class DeviceArguments {
 public:
  // name: of the reducer, for errors. accumulate: results are other arrays than gradients.
  DeviceArguments(Device& device, const Plan& plan, const std::string& name, bool accumulate)
      : device_(device), plan_(plan), name_(name), accumulate_(accumulate) {}

  void check_stream(StreamHandle stream);
  void check_memory(std::size_t tensor, const TensorView& view);

 private:
  void check_address(const void* memory, const char* what, const std::string& name);

  Device& device_;
  const Plan& plan_;
  const std::string& name_;
  bool accumulate_;
  std::unordered_set<const void*> known_addresses_;  // in the memory of this device
  std::vector<StreamHandle> known_streams_;          // streams of this device
};

}  // namespace tnt
