#include "reducer/bucket_buffers.hpp"

#include <mutex>
#include <numeric>
#include <utility>

namespace tnt {
namespace {

constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

BucketBuffers::BucketBuffers(Device& device, DeviceCommunicator& comm, std::span<const std::size_t> bytes, bool with_gathered,
                             StreamHandle stream) {
  const auto add = [](std::size_t sum, std::size_t of_one) { return sum + aligned(of_one); };
  const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}, add) * (with_gathered ? 2 : 1);
  registered_ = comm.registered_memory(all);
  if (!registered_) pooled_.emplace(device, all, stream);
  void* const memory = registered_ ? registered_.get() : pooled_->get();
  auto* next = static_cast<std::byte*>(memory);
  for (const std::size_t of_one : bytes) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.memory = next;
    next += aligned(of_one);
    if (!with_gathered) continue;
    buffer.gathered = next;
    next += aligned(of_one);
  }
  device.fill_zero(memory, all, stream);
  device.synchronize(stream);
}

// Memory of the pool is released in the order of its stream anyway.
void BucketBuffers::leave() noexcept {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<void>>& left = *new std::vector<std::shared_ptr<void>>;
  const std::scoped_lock lock(mutex);
  if (registered_) left.push_back(std::move(registered_));
}

}  // namespace tnt
