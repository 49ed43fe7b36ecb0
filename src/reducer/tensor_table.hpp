// The addresses of a bucket's tensors in device memory, for kernels. Nothing is uploaded while the addresses stay the same.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "device/handles.hpp"

namespace tnt {

// The device may not yet have read the pinned memory that the host writes, so there are several versions of it. A captured
// graph reads its own version in every replay: each captured set of addresses keeps a table.
class TensorTable {
 public:
  TensorTable(Device& device, std::size_t n_tensors, StreamHandle stream);

  void set(std::size_t position, const gpu::TensorArgument& argument);

  // The table in device memory, after an upload on the stream if anything has changed. Kernels that read its old content must
  // come earlier on the stream. wait: called while the host waits for the device, which happens only if the device is several
  // steps behind. In a capture, after check_capture().
  [[nodiscard]] const gpu::TensorArgument* upload(StreamHandle stream, bool capturing, const std::function<void()>& wait);

  // Throws TNT_UNSUPPORTED if too many different sets of addresses were captured for these to be captured, too.
  void check_capture();

  static constexpr std::size_t versions = 4;
  static constexpr std::size_t captures = 4;

 private:
  struct Version {
    gpu::TensorArgument* pinned;
    Event uploaded;
    bool in_use = false;
  };
  struct Captured {
    gpu::TensorArgument* pinned;
    gpu::TensorArgument* table;
    std::vector<gpu::TensorArgument> arguments;  // empty: unused
  };
  [[nodiscard]] const gpu::TensorArgument* upload_captured(StreamHandle stream);
  [[nodiscard]] std::vector<Captured>::iterator find_captured();  // with these addresses, or unused
  [[nodiscard]] std::size_t bytes() const noexcept { return arguments_.size() * sizeof(gpu::TensorArgument); }

  Device& device_;
  std::vector<gpu::TensorArgument> arguments_;
  DeviceBuffer tables_;  // for steps, then for captures
  PinnedBuffer pinned_;  // likewise
  std::vector<Version> versions_;
  std::vector<Captured> captured_;
  std::size_t next_ = 0;
  bool changed_ = true;
};

}  // namespace tnt
