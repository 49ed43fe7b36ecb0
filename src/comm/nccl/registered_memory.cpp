#include "comm/nccl/registered_memory.hpp"

#include <utility>

#include "base/log.hpp"

namespace tnt {

RegisteredMemory::RegisteredMemory(Device& device, std::shared_ptr<const NcclLibrary> library, std::size_t bytes)
    : device_(device), library_(std::move(library)), bytes_(bytes) {
  device_.with_current_device([&] { TNT_NCCL(*library_, MemAlloc, &memory_, bytes_); });
}

RegisteredMemory::~RegisteredMemory() {
  try {
    device_.with_current_device([&] {
      deregister();
      TNT_NCCL(*library_, MemFree, memory_);
    });
  } catch (const Error& error) {
    log(LogLevel::warning, "memory for {} is not freed: {}", library_->name(), error.what());
  }
}

void RegisteredMemory::register_with(NcclHandle& handle) {
  handle_ = &handle;
  if ((*library_)->CommWindowRegister != nullptr) {
    handle.call("ncclCommWindowRegister", [&](nccl::ncclComm_t comm) {
      return TNT_NCCL(*library_, CommWindowRegister, comm, memory_, bytes_, &window_, nccl::symmetric_window);
    });
  }
  if (window_ != nullptr) return;  // null without an error: not among these GPUs
  handle.call("ncclCommRegister",
              [&](nccl::ncclComm_t comm) { return TNT_NCCL(*library_, CommRegister, comm, memory_, bytes_, &registration_); });
}

// An aborted communicator has forgotten its registrations.
void RegisteredMemory::deregister() {
  if (window_ == nullptr && registration_ == nullptr) return;
  try {
    handle_->call("ncclCommDeregister", [&](nccl::ncclComm_t comm) {
      return window_ != nullptr ? TNT_NCCL(*library_, CommWindowDeregister, comm, window_)
                                : TNT_NCCL(*library_, CommDeregister, comm, registration_);
    });
  } catch (const Error& error) {
    log(LogLevel::info, "{}", error.what());
  }
}

}  // namespace tnt
