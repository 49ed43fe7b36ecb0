// Updates of variables on the fake device. TensorFlow's package does not export its C functions for them, so this is C++.
#include <cstdint>

#include "memory.hpp"
#include "stream.hpp"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace {

template <typename T>
T* numbers_of(const tensorflow::Tensor& tensor) {
  return tensor.NumElements() == 0 ? nullptr : reinterpret_cast<T*>(fake_device::bytes_of(tensor.data()));
}

// Gives the variable a new tensor, so that whoever has read the old one keeps it.
template <typename T, int SIGN>
class Update final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* const context) override {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &variable));
    const tensorflow::Tensor& value = context->input(1);
    TF_Status* const status = TF_NewStatus();
    SP_Stream_st* const stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
    TF_DeleteStatus(status);
    const tensorflow::mutex_lock lock{*variable->mu()};
    tensorflow::Tensor updated;
    OP_REQUIRES_OK(context, context->allocate_temp(value.dtype(), value.shape(), &updated));
    stream->enqueue([to = numbers_of<T>(updated), from = numbers_of<T>(*variable->tensor()), by = numbers_of<T>(value),
                     count = value.NumElements()] {
      for (std::int64_t at = 0; at < count; ++at) to[at] = from[at] + SIGN * by[at];
    });
    *variable->tensor() = updated;
  }
};

#define REGISTER(type)                                                                                                        \
  REGISTER_KERNEL_BUILDER(Name("AssignAddVariableOp").Device("TNTFAKE").HostMemory("resource").TypeConstraint<type>("dtype"), \
                          Update<type, 1>);                                                                                   \
  REGISTER_KERNEL_BUILDER(Name("AssignSubVariableOp").Device("TNTFAKE").HostMemory("resource").TypeConstraint<type>("dtype"), \
                          Update<type, -1>)

REGISTER(float);
REGISTER(std::int64_t);

}  // namespace
