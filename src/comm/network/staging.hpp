// Memory in which messages wait: taken for a call, given back by letting go, used again by the next call.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tnt {

using StagingBuffer = std::shared_ptr<std::byte[]>;

// A buffer is free when nobody but the pool holds it: a transfer that was given up keeps its own.
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
