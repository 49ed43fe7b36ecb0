// Device memory that NCCL reads and writes directly, without copies through buffers of its own.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/nccl/handle.hpp"
#include "common/non_copyable.hpp"
#include "device/device.hpp"

namespace tnt {

class RegisteredMemory : NonCopyable {
 public:
  // Allocates only. Throws TNT_SYSTEM.
  RegisteredMemory(Device& device, std::shared_ptr<const NcclLibrary> library, std::size_t bytes);
  // The memory must not be in use. The communicator, if it was registered with one, must still exist; it may be aborted.
  ~RegisteredMemory();

  [[nodiscard]] void* get() const noexcept { return memory_; }

  // Collective over the communicator's ranks, with as many bytes on each. Becomes a symmetric window where the library and the
  // GPUs' connections support it (NCCL >= 2.27 then takes kernels that access the memory of all ranks), else a buffer that NCCL
  // maps when an algorithm can use it. Throws TNT_SYSTEM. Call with the device as the current one.
  void register_with(NcclHandle& handle);

 private:
  void deregister();

  Device& device_;
  std::shared_ptr<const NcclLibrary> library_;
  std::size_t bytes_;
  void* memory_ = nullptr;
  NcclHandle* handle_ = nullptr;
  nccl::ncclWindow_t window_ = nullptr;
  void* registration_ = nullptr;
};

}  // namespace tnt
