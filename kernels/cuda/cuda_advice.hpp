// What to do about an error of the CUDA runtime; HIP has its own (src/device/hip/hip_advice.cpp).
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace tnt {

// ": install a newer driver", or "".
[[nodiscard]] std::string cuda_advice(cudaError_t code);

}  // namespace tnt
