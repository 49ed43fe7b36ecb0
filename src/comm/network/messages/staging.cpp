#include "comm/network/messages/staging.hpp"

#include <algorithm>
#include <numeric>

#include "common/memory.hpp"

namespace tnt {
namespace {

constexpr std::size_t smallest = 4096;
constexpr std::size_t max_idle = 64;  // buffers that the pool keeps

}  // namespace

StagingBuffer StagingPool::acquire(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto idle = [](const Entry& entry) { return entry.buffer.use_count() == 1; };
  for (const Entry& entry : entries_) {
    if (idle(entry) && entry.bytes >= bytes && entry.bytes / 4 <= std::max(bytes, smallest)) return entry.buffer;
  }
  if (static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), idle)) >= max_idle) {
    std::erase_if(entries_, idle);
  }
  const std::size_t rounded = std::max(smallest, rounded_up(bytes, smallest));
  entries_.push_back({StagingBuffer(new std::byte[rounded]), rounded});
  return entries_.back().buffer;
}

std::size_t StagingPool::bytes() const {
  const std::scoped_lock lock(mutex_);
  return std::accumulate(entries_.begin(), entries_.end(), std::size_t{0},
                         [](std::size_t sum, const Entry& entry) { return sum + entry.bytes; });
}

}  // namespace tnt
