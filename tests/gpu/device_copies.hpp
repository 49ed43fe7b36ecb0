// Copies of host arrays in the memory of a GPU, at the same addresses modulo 128, between guards that no kernel may write.
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

  // Where the copy of an array lies; the same one for the same array. nullptr for one of no bytes.
  template <typename T>
  [[nodiscard]] T* of(T* host, std::size_t bytes) {
    return static_cast<T*>(copy_of(host, bytes));
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // Waits for the stream, fails the test if a guard was written, and copies an array back to where it came from.
  void check_guards() const;
  void bring_back(void* host) const;

 private:
  struct Copy {
    std::byte* memory;  // guards included
    std::size_t before;
    std::size_t bytes;
  };
  [[nodiscard]] void* copy_of(const void* host, std::size_t bytes);

  std::size_t guard_;  // bytes on both sides
  cudaStream_t stream_ = nullptr;
  std::map<const void*, Copy> copies_;
};

}  // namespace tnt::testing
