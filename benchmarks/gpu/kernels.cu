#include <algorithm>

#include "benchmarks/gpu/kernels.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt::bench {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned loads = 4;  // of each thread, in flight before its first store

__global__ void __launch_bounds__(threads) copy_kernel(uint4* __restrict__ to, const uint4* __restrict__ from, std::size_t n) {
  const std::size_t first = std::size_t{blockIdx.x} * threads * loads + threadIdx.x;
  uint4 vectors[loads];
#pragma unroll
  for (unsigned i = 0; i < loads; ++i) {
    if (first + i * threads < n) vectors[i] = from[first + i * threads];
  }
#pragma unroll
  for (unsigned i = 0; i < loads; ++i) {
    if (first + i * threads < n) to[first + i * threads] = vectors[i];
  }
}

__global__ void compute_kernel(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

int attribute(cudaDeviceAttr name) {
  int device = 0;
  int value = 0;
  TNT_CUDA(cudaGetDevice(&device));
  TNT_CUDA(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

}  // namespace

void copy_by_kernel(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const std::size_t n = bytes / sizeof(uint4);
  const auto blocks = static_cast<unsigned>((n + threads * loads - 1) / (threads * loads));
  if (blocks == 0) return;
  copy_kernel<<<blocks, threads, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from), n);
  TNT_CUDA(cudaGetLastError());
}

void compute(double microseconds, cudaStream_t stream) {
  static const int kilohertz = attribute(cudaDevAttrClockRate);
  static const int multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const auto cycles = static_cast<long long>(microseconds * 1e-3 * kilohertz);
  compute_kernel<<<static_cast<unsigned>(std::max(1, multiprocessors / 4)), threads, 0, stream>>>(cycles);
  TNT_CUDA(cudaGetLastError());
}

}  // namespace tnt::bench
