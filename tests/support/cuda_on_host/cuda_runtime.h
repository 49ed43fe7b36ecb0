// The part of CUDA that examples/cuda_trainer uses, on the host, so that its arithmetic and its use of the C API can be tested
// without a GPU. Every call is finished when it returns.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__

struct Dim {
  unsigned x;
};
inline Dim blockIdx{};
inline Dim blockDim{};
inline Dim threadIdx{};

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
constexpr unsigned cudaStreamNonBlocking = 1;

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// Filled with a value that must not affect any result.
template <typename T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(std::malloc(bytes));
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(static_cast<void*>(*memory), 0xff, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

// kernel<<<grid, block, shared, stream>>>(arguments...) is written like this here.
template <typename Kernel, typename... Arguments>
void launch_on_host(int grid, int block, Kernel kernel, Arguments... arguments) {
  blockDim.x = static_cast<unsigned>(block);
  for (blockIdx.x = 0; blockIdx.x < static_cast<unsigned>(grid); ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments...);
  }
}
