// A pool of staging memory for messages. A buffer returns to the pool when its last owner releases it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tnt {

using StagingBuffer = std::shared_ptr<std::byte[]>;

// A buffer is free when only the pool holds it. A cancelled request keeps its buffer.
class StagingPool {
 public:
  [[nodiscard]] StagingBuffer acquire(std::size_t bytes);

 private:
  struct Entry {
    StagingBuffer buffer;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace tnt
