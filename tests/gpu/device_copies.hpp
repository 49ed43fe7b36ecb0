// Copies of host arrays in a GPU's memory, at the same addresses modulo 128, between guards that no kernel may write.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>

namespace tnt::testing {

class DeviceCopies {
 public:
  DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  ~DeviceCopies();

  // The address of an array's copy; the same for the same array. nullptr for an empty one.
  template <typename T>
  [[nodiscard]] T* of(T* host, std::size_t bytes) {
    return static_cast<T*>(copy_of(host, bytes));
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // Waits for the stream, fails the test if a guard was written, and copies an array back to the host array.
  void check_guards() const;
  void bring_back(void* host) const;

 private:
  struct Copy {
    std::byte* memory;  // including guards
    std::size_t before;
    std::size_t bytes;
  };
  [[nodiscard]] void* copy_of(const void* host, std::size_t bytes);

  std::size_t guard_;  // bytes on both sides
  cudaStream_t stream_ = nullptr;
  std::map<const void*, Copy> copies_;
};

}  // namespace tnt::testing
