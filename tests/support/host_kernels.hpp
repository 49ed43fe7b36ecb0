// The kernels of kernels/cuda/bucket_kernels.hpp on host memory, by the library's kernels for the CPU: a reference for tests.
// Values have the same bits; statistics are summed from a tile's first element to its last.
#pragma once

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::host {

void pack(const gpu::BucketLaunch& launch);
void unpack(const gpu::BucketLaunch& launch);
void accumulate(const gpu::BucketLaunch& launch);
void clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor);
void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype);

}  // namespace tnt::host
