#include "fake_tensorflow.hpp"

#include <cstring>
#include <stdexcept>

using fake_tensorflow::Buffer;
using fake_tensorflow::Kernel;

struct TF_Status {
  int code = TF_OK;
  std::string message;
};
struct TF_Tensor {
  std::shared_ptr<Buffer> buffer;
};
struct TF_KernelBuilder {
  Kernel kernel;
};
struct TF_OpDefinitionBuilder {};
struct TF_OpKernelConstruction {
  std::map<std::string, std::vector<std::int64_t>> attributes;
};
struct TF_OpKernelContext {
  std::vector<std::shared_ptr<Buffer>> inputs;
  std::vector<std::shared_ptr<Buffer>> outputs;
  bool inputs_shared = false;
  std::string failure;
};

namespace {

// Made when the ops are registered, before main and in any order.
std::map<std::string, Kernel>& registered() {
  static std::map<std::string, Kernel> all;
  return all;
}
int tensors = 0;

}  // namespace

namespace fake_tensorflow {

const std::map<std::string, Kernel>& kernels() { return registered(); }
int live_tensors() { return tensors; }

Node::Node(const std::string& kernel, std::int64_t reducer, std::int64_t bucket, std::vector<std::int64_t> tensors)
    : kernel_(&registered().at(kernel)) {
  TF_OpKernelConstruction construction{{{"reducer", {reducer}}, {"bucket", {bucket}}, {"tensors", std::move(tensors)}}};
  state_ = kernel_->create(&construction);
}

Node::~Node() { kernel_->destroy(state_); }

std::string Node::run(const std::vector<std::shared_ptr<Buffer>>& inputs) {
  TF_OpKernelContext context{inputs, std::vector<std::shared_ptr<Buffer>>(inputs.size()), inputs_shared_, ""};
  context_ = &context;
  kernel_->compute(state_, &context);
  outputs_ = context.outputs;
  return context.failure;
}

}  // namespace fake_tensorflow

TF_Status* TF_NewStatus(void) { return new TF_Status; }
void TF_DeleteStatus(TF_Status* status) { delete status; }
void TF_SetStatus(TF_Status* status, int code, const char* message) { *status = {code, message}; }
int TF_GetCode(const TF_Status* status) { return status->code; }

void TF_DeleteTensor(TF_Tensor* tensor) {
  tensors -= tensor != nullptr ? 1 : 0;
  delete tensor;
}
int TF_NumDims(const TF_Tensor*) { return 1; }
std::int64_t TF_Dim(const TF_Tensor* tensor, int) { return static_cast<std::int64_t>(tensor->buffer->data.size()); }
void* TF_TensorData(const TF_Tensor* tensor) { return tensor->buffer->data.data(); }

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char*) { return new TF_OpDefinitionBuilder; }
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder*, bool) {}
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*)) {
}
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status*) { delete builder; }

TF_ShapeHandle* TF_NewShapeHandle(void) { throw std::logic_error("no shapes are inferred here"); }
void TF_DeleteShapeHandle(TF_ShapeHandle*) {}
std::int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext*) { return 0; }
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*) {}
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*) {}

TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*)) {
  return new TF_KernelBuilder{{op, device, create, compute, destroy, {}}};
}
void TF_KernelBuilder_HostMemory(TF_KernelBuilder* builder, const char* argument) {
  builder->kernel.in_host_memory.emplace_back(argument);
}
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder* builder, TF_Status*) {
  registered()[name] = std::move(builder->kernel);
  delete builder;
}
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction*, TF_Status* status) { throw std::logic_error(status->message); }
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction* construction, const char* name, std::int32_t* size,
                                         std::int32_t* total, TF_Status*) {
  *size = *total = static_cast<std::int32_t>(construction->attributes.at(name).size());
}
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction* construction, const char* name, std::int64_t* value,
                                          TF_Status*) {
  *value = construction->attributes.at(name).at(0);
}
void TF_OpKernelConstruction_GetAttrInt64List(TF_OpKernelConstruction* construction, const char* name, std::int64_t* values,
                                              int most, TF_Status*) {
  const auto& all = construction->attributes.at(name);
  std::memcpy(values, all.data(), sizeof(std::int64_t) * static_cast<std::size_t>(most));
}

int TF_NumInputs(TF_OpKernelContext* context) { return static_cast<int>(context->inputs.size()); }
void TF_GetInput(TF_OpKernelContext* context, int index, TF_Tensor** tensor, TF_Status*) {
  *tensor = new TF_Tensor{context->inputs.at(static_cast<std::size_t>(index))};
  ++tensors;
}
void TF_SetOutput(TF_OpKernelContext* context, int index, const TF_Tensor* tensor, TF_Status*) {
  context->outputs.at(static_cast<std::size_t>(index)) = tensor->buffer;
}
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int* candidates, int, int output,
                                           const std::int64_t*, int, int* forwarded, TF_Status*) {
  std::shared_ptr<Buffer> buffer = context->inputs.at(static_cast<std::size_t>(*candidates));
  *forwarded = context->inputs_shared ? -1 : *candidates;
  if (context->inputs_shared) buffer = std::make_shared<Buffer>(Buffer{std::vector<double>(buffer->data.size())});
  context->outputs.at(static_cast<std::size_t>(output)) = buffer;
  ++tensors;
  return new TF_Tensor{buffer};
}
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status) { context->failure = status->message; }
