// Where a bucket's tensors lie, as kernels read it in device memory. Static while nothing moves: only then is nothing uploaded.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "device/handles.hpp"

namespace tnt {

// The host writes into pinned memory that the device may not have read yet, so there are several versions of it. A captured
// graph reads its own for as long as it is replayed: each set of addresses that was captured keeps a table.
class TensorTable {
 public:
  TensorTable(Device& device, std::size_t n_tensors, StreamHandle stream);

  void set(std::size_t position, const gpu::TensorArgument& argument);

  // The table in device memory, after an upload on the stream if anything has changed: kernels that read what it held before
  // come before on the stream. wait: called while the host has to wait for the device, which has to be several steps behind.
  // Throws TNT_UNSUPPORTED when too many different sets of addresses were captured.
  [[nodiscard]] const gpu::TensorArgument* upload(StreamHandle stream, bool capturing, const std::function<void()>& wait);

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
    std::vector<gpu::TensorArgument> arguments;  // empty: not taken yet
  };
  [[nodiscard]] const gpu::TensorArgument* upload_captured(StreamHandle stream);
  [[nodiscard]] std::size_t bytes() const noexcept { return arguments_.size() * sizeof(gpu::TensorArgument); }

  Device& device_;
  std::vector<gpu::TensorArgument> arguments_;
  DeviceBuffer tables_;  // of steps as they come, then of captures
  PinnedBuffer pinned_;  // likewise
  std::vector<Version> versions_;
  std::vector<Captured> captured_;
  std::size_t next_ = 0;
  bool changed_ = true;
};

}  // namespace tnt
