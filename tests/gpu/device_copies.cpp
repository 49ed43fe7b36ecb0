#include "gpu/device_copies.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/cuda_call.hpp"

namespace tnt::testing {
namespace {

constexpr int mark = 0xa5;

// Without guards compute-sanitizer sees every access outside an array's allocation.
std::size_t guard_bytes() { return std::getenv("TESTS_WITHOUT_GUARDS") == nullptr ? 256 : 0; }

}  // namespace

DeviceCopies::DeviceCopies() : guard_(guard_bytes()) { TNT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

DeviceCopies::~DeviceCopies() {
  for (const auto& [host, copy] : copies_) cudaFree(copy.memory);
  cudaStreamDestroy(stream_);
}

// cudaMalloc returns multiples of 256.
void* DeviceCopies::copy_of(const void* host, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  auto found = copies_.find(host);
  if (found == copies_.end()) {
    Copy copy{.memory = nullptr, .before = guard_ + reinterpret_cast<std::uintptr_t>(host) % 128, .bytes = bytes};
    const std::size_t all = copy.before + bytes + guard_;
    void* memory = nullptr;
    TNT_CUDA(cudaMalloc(&memory, all));
    copy.memory = static_cast<std::byte*>(memory);
    found = copies_.emplace(host, copy).first;
    TNT_CUDA(cudaMemsetAsync(copy.memory, mark, all, stream_));
    TNT_CUDA(cudaMemcpyAsync(copy.memory + copy.before, host, bytes, cudaMemcpyHostToDevice, stream_));
  }
  return found->second.memory + found->second.before;
}

void DeviceCopies::check_guards() const {
  TNT_CUDA(cudaStreamSynchronize(stream_));
  for (const auto& [host, copy] : copies_) {
    const std::byte* const after = copy.memory + copy.before + copy.bytes;
    std::vector<std::byte> guards(copy.before + guard_);
    if (guards.empty()) continue;
    TNT_CUDA(cudaMemcpy(guards.data(), copy.memory, copy.before, cudaMemcpyDeviceToHost));
    TNT_CUDA(cudaMemcpy(guards.data() + copy.before, after, guard_, cudaMemcpyDeviceToHost));
    EXPECT_EQ(std::count(guards.begin(), guards.end(), static_cast<std::byte>(mark)), std::ssize(guards))
        << "a kernel wrote beside an array of " << copy.bytes << " bytes";
  }
}

void DeviceCopies::bring_back(void* host) const {
  const auto found = copies_.find(host);
  if (found == copies_.end()) return;
  const Copy& copy = found->second;
  TNT_CUDA(cudaStreamSynchronize(stream_));
  TNT_CUDA(cudaMemcpy(host, copy.memory + copy.before, copy.bytes, cudaMemcpyDeviceToHost));
}

}  // namespace tnt::testing
