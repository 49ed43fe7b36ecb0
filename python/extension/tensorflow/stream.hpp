// The stream on which TensorFlow runs a GPU kernel.
#pragma once

#include "tarantella/tarantella.h"
#include "tensorflow_c.h"

namespace tnt_tensorflow {

// nullptr if no function was set.
[[nodiscard]] tnt_stream_t stream_of(TF_OpKernelContext* context);

}  // namespace tnt_tensorflow

extern "C" {
// For the Python package, before the first step on a GPU: sets the function of gpu_stream.cpp.
TNT_EXPORT void tnt_tensorflow_set_stream_of(void* (*function)(void* context));
}
