// The work on a bucket in host memory, done at once by the kernels for the CPU: kernels/cuda/bucket_kernels.hpp says what each
// does. The bits of the values are the same; statistics are summed from a tile's first element to its last.
#pragma once

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::host {

void pack(const gpu::BucketLaunch& launch);
void unpack(const gpu::BucketLaunch& launch, bool accumulate);
void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order);
void axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype);

}  // namespace tnt::host
