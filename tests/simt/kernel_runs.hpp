// The kernels on arrays in host memory, run to their end, for tests that do not care where: on the CPU (kernel_runs.cpp), or on
// a GPU (tests/gpu/kernel_runs.cpp) that gets copies of the arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::testing {

void run_pack(const gpu::BucketLaunch& launch);
void run_unpack(const gpu::BucketLaunch& launch);
void run_sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
void run_reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order);

// In which order the threads of a block run from now on. A GPU has an order of its own.
enum class Schedule { ascending, descending, shuffled };
void set_schedule(Schedule schedule, unsigned seed = 0);

}  // namespace tnt::testing
