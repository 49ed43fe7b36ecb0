#include "reducer/bucket_buffers.hpp"

#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "common/memory.hpp"

namespace tnt {
namespace {

std::size_t aligned(std::size_t bytes) { return rounded_up(bytes, 256); }

struct Left {
  std::shared_ptr<void> memory;
  Left* next = nullptr;
};
std::mutex left_mutex;
Left* all_left = nullptr;  // never freed

}  // namespace

BucketBuffers::BucketBuffers(Device& device, DeviceCommunicator& comm, std::span<const std::size_t> bytes, bool with_gathered,
                             StreamHandle stream) {
  const auto add = [](std::size_t sum, std::size_t part) { return sum + aligned(part); };
  const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}, add) * (with_gathered ? 2 : 1);
  registered_ = comm.registered_memory(all);
  if (!registered_) pooled_.emplace(device, all, stream);
  void* const memory = registered_ ? registered_.get() : pooled_->get();
  auto* next = static_cast<std::byte*>(memory);
  for (const std::size_t part : bytes) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.memory = next;
    next += aligned(part);
    if (!with_gathered) continue;
    buffer.gathered = next;
    next += aligned(part);
  }
  device.fill_zero(memory, all, stream);
  device.synchronize(stream);
}

// Memory of the pool is released in the order of its stream anyway.
void BucketBuffers::leave() noexcept {
  if (!registered_) return;
  const std::scoped_lock lock(left_mutex);
  if (auto* const left = new (std::nothrow) Left{std::move(registered_), all_left}) all_left = left;
}

}  // namespace tnt
