// The device memory in which buckets travel: buffers that they use in turn, or one for each. Where the communicator asks for
// it, the memory is registered with its library.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/device_communicator.hpp"
#include "device/handles.hpp"

namespace tnt {

class BucketBuffers : NonCopyable {
 public:
  struct Buffer {
    std::byte* memory = nullptr;
    std::byte* gathered = nullptr;         // as large; only if asked for
    std::optional<std::size_t> last_user;  // the bucket whose unpacking frees it
  };
  // Collective. bytes: the size of each buffer, equal on all ranks. All memory is zero when the constructor returns, so that
  // padding, which travels, has a value. stream: must outlive the buffers.
  BucketBuffers(Device& device, DeviceCommunicator& comm, std::span<const std::size_t> bytes, bool with_gathered,
                StreamHandle stream);

  [[nodiscard]] Buffer& of(std::size_t bucket) noexcept { return buffers_[bucket % buffers_.size()]; }
  // All work on the memory is known to be done when the next user begins.
  void forget_users() noexcept {
    for (Buffer& buffer : buffers_) buffer.last_user.reset();
  }
  // Work on the memory may never end: it is not released before the process ends.
  void leave() noexcept;

 private:
  std::shared_ptr<void> registered_;    // null: the communicator does not ask for it
  std::optional<DeviceBuffer> pooled_;  // otherwise
  std::vector<Buffer> buffers_;
};

}  // namespace tnt
