// The stream on which TensorFlow runs a GPU kernel. Its stable C API does not tell for CUDA, so this one function is compiled
// against the C++ headers of the TensorFlow it is used with, whose layout no other version need have: by
// tarantella/keras/reduction/gpu_stream.py, on the machine where it is needed. No CUDA is needed for it, and no CUDA runtime is linked.
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

// A CUstream, which cudaStream_t is another name for; nullptr on a device without streams. context: a TF_OpKernelContext*,
// which is how the C API calls an OpKernelContext.
extern "C" __attribute__((visibility("default"))) void* tnt_tensorflow_gpu_stream(void* context) {
  auto* device_context = static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
  if (device_context == nullptr || device_context->stream() == nullptr) return nullptr;
  return device_context->stream()->platform_specific_handle().stream;
}
