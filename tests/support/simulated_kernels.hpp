// The bucket kernels (kernels/cuda/bucket_kernels.hpp) of a simulated device: which memory they access, and the implementations
// that do the work. Called when the work runs, because tiles are in device memory and may have changed.
#pragma once

#include <vector>

#include "kernels/cuda/bucket_kernels.hpp"
#include "support/ordering.hpp"

namespace tnt::testing {

// All are finished when they return.
struct Kernels {
  void (*pack)(const gpu::BucketLaunch& launch);
  void (*unpack)(const gpu::BucketLaunch& launch);
  void (*accumulate)(const gpu::BucketLaunch& launch);
  void (*sum_statistics)(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
  void (*clip_factor)(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor);
  void (*reduce)(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype);
};
[[nodiscard]] const Kernels& cpu_kernels();  // on the CPU, fast
// the GPU's kernels compiled for the CPU; only in programs with simt_kernels.cpp
[[nodiscard]] const Kernels& simt_kernels();

// The accesses of a launch of pack or unpack, or of accumulate. If tiles are not entirely in simulated memory: only the access
// that shows this.
[[nodiscard]] std::vector<Access> bucket_accesses(const gpu::BucketLaunch& launch, gpu::Direction direction);
[[nodiscard]] std::vector<Access> accumulate_accesses(const gpu::BucketLaunch& launch);

}  // namespace tnt::testing
