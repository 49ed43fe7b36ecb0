// Kernels for comparison with packing, and a stand-in for backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tnt::bench {

// A simple copy with vectors of 16 bytes. Addresses and bytes are multiples of 16.
void copy_by_kernel(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

// Keeps a quarter of the multiprocessors busy for this time.
void compute(double microseconds, cudaStream_t stream);

}  // namespace tnt::bench
