// The CUDA stream on which TensorFlow runs a GPU kernel. TensorFlow's stable C API does not provide it for CUDA, so this one
// function is compiled against the C++ headers of the TensorFlow in use, whose layout may differ between versions.
// tarantella/keras/reduction/gpu_stream.py compiles it on the machine that needs it. It needs no CUDA and links no CUDA
// runtime.
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

// Returns a CUstream, which is another name of cudaStream_t; nullptr on a device without streams. context: a
// TF_OpKernelContext*, the C API's name for an OpKernelContext.
extern "C" __attribute__((visibility("default"))) void* tnt_tensorflow_gpu_stream(void* context) {
  auto* device_context = static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
  if (device_context == nullptr || device_context->stream() == nullptr) return nullptr;
  return device_context->stream()->platform_specific_handle().stream;
}
