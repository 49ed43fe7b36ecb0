// The kernels on buckets (kernels/cuda/bucket_kernels.hpp) of a simulated device: what they read and write, and who does the
// work. Called when the work runs: tiles and tensors lie in device memory, and are what they are then.
#pragma once

#include <vector>

#include "kernels/cuda/bucket_kernels.hpp"
#include "support/ordering.hpp"

namespace tnt::testing {

// All at once.
struct Kernels {
  void (*pack)(const gpu::BucketLaunch& launch);
  void (*unpack)(const gpu::BucketLaunch& launch);
  void (*sum_statistics)(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total);
  void (*reduce)(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order);
};
[[nodiscard]] const Kernels& cpu_kernels();   // the library's for the CPU, fast
[[nodiscard]] const Kernels& simt_kernels();  // a GPU's own, compiled for the CPU: in programs with simt_kernels.cpp

enum class Direction { pack, unpack };

// If tiles or tensors are not all in memory of the simulation, only those accesses that show it.
[[nodiscard]] std::vector<Access> bucket_accesses(const gpu::BucketLaunch& launch, Direction direction);

}  // namespace tnt::testing
