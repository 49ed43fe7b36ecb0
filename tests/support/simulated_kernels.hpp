// What the kernels on buckets (kernels/cuda/bucket_kernels.hpp) read and write. Called when the work runs: tiles and tensors
// lie in device memory, and are what they are then.
#pragma once

#include <vector>

#include "kernels/cuda/bucket_kernels.hpp"
#include "support/ordering.hpp"

namespace tnt::testing {

enum class Direction { pack, unpack, accumulate };

// If tiles or tensors are not all in memory of the simulation, only those accesses that show it.
[[nodiscard]] std::vector<Access> bucket_accesses(const gpu::BucketLaunch& launch, Direction direction);

}  // namespace tnt::testing
