// Streams, events and memory of the benchmark, directly from the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/cuda_call.hpp"

namespace tnt::bench {

class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    void* memory = nullptr;
    TNT_CUDA(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    memory_ = static_cast<std::byte*>(memory);
    TNT_CUDA(cudaMemset(memory_, 0x3c, bytes));  // 0.0115 as floats: ordinary numbers
    TNT_CUDA(cudaStreamSynchronize(nullptr));    // streams that do not block would not wait for it
  }
  Memory(Memory&& other) noexcept : memory_(other.memory_) { other.memory_ = nullptr; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&&) = delete;
  ~Memory() { cudaFree(memory_); }
  [[nodiscard]] std::byte* get() const noexcept { return memory_; }

 private:
  std::byte* memory_ = nullptr;
};

class CudaStream {
 public:
  CudaStream() { TNT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() { cudaStreamDestroy(stream_); }
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  void synchronize() const { TNT_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent() { TNT_CUDA(cudaEventCreate(&event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() { cudaEventDestroy(event_); }
  void record(cudaStream_t stream) const { TNT_CUDA(cudaEventRecord(event_, stream)); }
  // Both events must be complete.
  [[nodiscard]] double microseconds_since(const CudaEvent& begin) const {
    float milliseconds = 0;
    TNT_CUDA(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tnt::bench
