// The device of a stream.
#pragma once

#include <cuda_runtime_api.h>

namespace tnt {

// For cudaStreamLegacy and cudaStreamPerThread: the calling thread's current device. Creates no context.
[[nodiscard]] int device_of_stream(cudaStream_t stream);

}  // namespace tnt
