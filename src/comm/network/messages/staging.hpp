// A pool of staging memory for messages. A buffer returns to the pool when its last owner releases it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tnt {

// Without an owner: memory of the caller.
using StagingBuffer = std::shared_ptr<std::byte[]>;

[[nodiscard]] inline StagingBuffer callers_memory(const void* memory) {
  return {std::shared_ptr<std::byte[]>(), static_cast<std::byte*>(const_cast<void*>(memory))};  // NOLINT: of a send, only read
}
[[nodiscard]] inline bool is_callers(const StagingBuffer& buffer) noexcept { return buffer.use_count() == 0; }

// A buffer is free when only the pool holds it. A cancelled request keeps its buffer.
class StagingPool {
 public:
  [[nodiscard]] StagingBuffer acquire(std::size_t bytes);
  [[nodiscard]] std::size_t bytes() const;  // of all buffers, in use or idle

 private:
  struct Entry {
    StagingBuffer buffer;
    std::size_t bytes;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace tnt
