// The stream on which TensorFlow runs a kernel on a GPU.
#pragma once

#include "tarantella/tarantella.h"
#include "tensorflow_c.h"

namespace tnt_tensorflow {

// nullptr if nobody has said how to tell.
[[nodiscard]] tnt_stream_t stream_of(TF_OpKernelContext* context);

}  // namespace tnt_tensorflow

extern "C" {
// For the Python package, before any step on a GPU: the function of gpu_stream.cpp.
TNT_EXPORT void tnt_tensorflow_set_stream_of(void* (*function)(void* context));
}
