#pragma once

#include <cstdint>

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::testing {

// For this host thread. few_tensors: as with a driver before CUDA 12.1. No bulk copies: as before compute capability 9.0.
void set_max_tensors_per_launch(std::uint32_t tensors);
void set_bulk_copies(bool possible);

}  // namespace tnt::testing
