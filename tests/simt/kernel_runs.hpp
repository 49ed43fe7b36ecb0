// Run the kernels on arrays in host memory and wait for them, for tests that run on the CPU (kernel_runs.cpp) or on a GPU
// (tests/gpu/kernel_runs.cpp, which copies the arrays).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::testing {

void run_pack(const gpu::BucketLaunch& launch);
void run_unpack(const gpu::BucketLaunch& launch);
void run_accumulate(const gpu::BucketLaunch& launch);
double run_clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit);
void run_sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
void run_reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype);

// The order in which the threads of a block run from now on. A GPU has its own.
enum class Schedule { ascending, descending, shuffled };
void set_schedule(Schedule schedule, unsigned seed = 0);

// How many threads exchange values at once from now on: 32 or 64. A GPU has its own number.
void set_warp_size(unsigned threads);

}  // namespace tnt::testing
