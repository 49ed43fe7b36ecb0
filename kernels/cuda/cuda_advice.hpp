// Advice for errors of the CUDA runtime. src/device/hip/hip_advice.cpp has the same function for HIP.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace tnt {

// ": install a newer driver", or "".
[[nodiscard]] std::string cuda_advice(cudaError_t code);

}  // namespace tnt
