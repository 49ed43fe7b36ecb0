// Shared helpers of our ops' kernels: statuses, errors with a message for Python, inputs.
//
// This folder has the ops of TensorFlow: ops.cpp starts and awaits buckets, collective_ops.cpp has collectives of tensors of
// one shape on all ranks, row_ops.cpp those of tensors whose numbers of rows differ, message_ops.cpp sends and receives,
// sparse_op.cpp and tree_add_op.cpp add on the host. They call C APIs only, ours and TensorFlow's; gpu_stream.cpp, a library of
// its own, is the exception.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "attachments.hpp"

namespace tnt_tensorflow {

class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  ~Status() { TF_DeleteStatus(status_); }
  [[nodiscard]] TF_Status* get() const { return status_; }
  [[nodiscard]] bool ok() const { return TF_GetCode(status_) == TF_OK; }

 private:
  TF_Status* status_;
};

// Python finds our message in TensorFlow's message by these marks (tarantella/errors.py).
inline void fail(TF_OpKernelContext* context, const char* status_name, const std::string& message, int code = TF_INTERNAL) {
  const Status status;
  TF_SetStatus(status.get(), code, ("[tarantella " + std::string(status_name) + "] " + message + " [/tarantella]").c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

inline void fail(TF_OpKernelContext* context, tnt_status_t status) { fail(context, tnt_status_name(status), tnt_last_error()); }

// nullptr if the kernel has failed.
inline std::shared_ptr<CommunicatorAttachment> communicator_of(TF_OpKernelContext* context, std::int64_t id) {
  auto attachment = find_communicator(id);
  if (!attachment) fail(context, "TNT_INVALID_ARGUMENT", "this graph was made for a job that has ended");
  return attachment;
}

inline bool passed(TF_OpKernelContext* context, const Status& status) {
  if (!status.ok()) TF_OpKernelContext_Failure(context, status.get());
  return status.ok();
}

inline Tensor input(TF_OpKernelContext* context, int index, const Status& status) {
  TF_Tensor* tensor = nullptr;
  TF_GetInput(context, index, &tensor, status.get());
  return Tensor(tensor);
}

struct Dims {
  std::array<std::int64_t, 16> sizes{};
  int count = 0;
};

// Fails in status if the tensor has too many dimensions.
inline Dims dims_of(const TF_Tensor* tensor, const Status& status) {
  Dims dims{.sizes = {}, .count = TF_NumDims(tensor)};
  if (dims.count > static_cast<int>(dims.sizes.size())) {
    TF_SetStatus(status.get(), TF_INVALID_ARGUMENT, "a tensor has more than 16 dimensions");
    return dims;
  }
  for (int i = 0; i < dims.count; ++i) dims.sizes[static_cast<std::size_t>(i)] = TF_Dim(tensor, i);
  return dims;
}

// An output with the shape of the first candidate, in the memory of a candidate that nobody else uses, if there is one. A held
// input prevents that, so release it before the call and read its data afterwards. forwarded, if not nullptr, gets that
// candidate, or -1.
inline Tensor forward_or_allocate(TF_OpKernelContext* context, std::span<const int> candidates, int output,
                                  const Status& status, int* forwarded = nullptr) {
  Tensor source = input(context, candidates[0], status);
  if (!status.ok()) return nullptr;
  const Dims dims = dims_of(source.get(), status);
  if (!status.ok()) return nullptr;
  source.reset();
  int own = -1;
  return Tensor(TF_ForwardInputOrAllocateOutput(context, candidates.data(), static_cast<int>(candidates.size()), output,
                                                dims.sizes.data(), dims.count, forwarded == nullptr ? &own : forwarded,
                                                status.get()));
}

// For shape inference: n outputs; output i has the shape of input first + i.
inline void same_shapes(TF_ShapeInferenceContext* context, int first, int n, TF_Status* status) {
  for (int i = 0; i < n && TF_GetCode(status) == TF_OK; ++i) {
    TF_ShapeHandle* shape = TF_NewShapeHandle();
    TF_ShapeInferenceContextGetInput(context, first + i, shape, status);
    if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
    TF_DeleteShapeHandle(shape);
  }
}
template <int first>
void same_shapes_from(TF_ShapeInferenceContext* context, TF_Status* status) {
  same_shapes(context, first, static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - first, status);
}

inline tnt_dtype_t dtype_of(int type) {
  switch (type) {
    case TF_DOUBLE: return TNT_FLOAT64;
    case TF_HALF: return TNT_FLOAT16;
    case TF_BFLOAT16: return TNT_BFLOAT16;
    case TF_INT8: return TNT_INT8;
    case TF_UINT8: return TNT_UINT8;
    case TF_INT32: return TNT_INT32;
    case TF_INT64: return TNT_INT64;
    default: return TNT_FLOAT32;  // our ops accept no other types
  }
}

inline tnt_dtype_t dtype_of(const TF_Tensor* tensor) { return dtype_of(TF_TensorType(tensor)); }

// Reads integer attributes of a kernel. False if one is missing: the construction has failed then.
struct IntAttribute {
  const char* name;
  std::int64_t* value;
};
inline bool read_attributes(TF_OpKernelConstruction* construction, std::initializer_list<IntAttribute> attributes) {
  const Status status;
  for (const auto& [name, value] : attributes) {
    if (status.ok()) TF_OpKernelConstruction_GetAttrInt64(construction, name, value, status.get());
  }
  if (!status.ok()) TF_OpKernelConstruction_Failure(construction, status.get());
  return status.ok();
}
// Reads an attribute of text, cut at the size of the array. As `read_attributes`.
template <std::size_t size>
bool read_text(TF_OpKernelConstruction* construction, const char* name, std::array<char, size>* text) {
  const Status status;
  TF_OpKernelConstruction_GetAttrString(construction, name, text->data(), size - 1, status.get());
  if (!status.ok()) TF_OpKernelConstruction_Failure(construction, status.get());
  return status.ok();
}
template <typename Attributes>
void delete_attributes(void* attributes) {
  delete static_cast<Attributes*>(attributes);
}

// Registration. TensorFlow loads the library for it; a failure shows up as "op not found" when the op is used.
struct Op {
  const char* name;
  std::initializer_list<const char*> inputs;
  std::initializer_list<const char*> outputs;
  std::initializer_list<const char*> attributes;
  void (*infer_shapes)(TF_ShapeInferenceContext*, TF_Status*);
  bool is_stateful = true;  // otherwise TensorFlow might fold, merge or prune it, on one rank only
};
inline void register_op(const Op& op) {
  const Status status;
  TF_OpDefinitionBuilder* definition = TF_NewOpDefinitionBuilder(op.name);
  for (const char* input : op.inputs) TF_OpDefinitionBuilderAddInput(definition, input);
  for (const char* output : op.outputs) TF_OpDefinitionBuilderAddOutput(definition, output);
  for (const char* attribute : op.attributes) TF_OpDefinitionBuilderAddAttr(definition, attribute);
  if (op.is_stateful) TF_OpDefinitionBuilderSetIsStateful(definition, true);  // `false` would set it as well
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, op.infer_shapes);
  TF_RegisterOpDefinition(definition, status.get());
}
inline void register_kernel(const char* name, TF_KernelBuilder* kernel) {
  const Status status;
  TF_RegisterKernelBuilder(name, kernel, status.get());
}
// An op with one kernel, on the host. create: makes the kernel's Attributes.
template <typename Attributes>
void register_on_host(const Op& op, void* (*create)(TF_OpKernelConstruction*), void (*compute)(void*, TF_OpKernelContext*)) {
  register_op(op);
  register_kernel(op.name, TF_NewKernelBuilder(op.name, "CPU", create, compute, delete_attributes<Attributes>));
}

// Shape inference: that of ops without a result of a known form.
inline void no_shapes(TF_ShapeInferenceContext* /*context*/, TF_Status* /*status*/) {}
inline void unknown_shape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// Type attributes: of an op that only moves a tensor; of one that reduces a tensor, a list of them or two.
inline constexpr const char* any_type =
    "T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, complex64, complex128}";
#define TNT_SUMMED_TYPES "{float, double, half, bfloat16, int8, uint8, int32, int64}"
inline constexpr const char* summed_type = "T: " TNT_SUMMED_TYPES;
inline constexpr const char* types = "T: list(" TNT_SUMMED_TYPES ")";
inline constexpr const char* other_types = "S: list(" TNT_SUMMED_TYPES ") >= 0";
#undef TNT_SUMMED_TYPES

}  // namespace tnt_tensorflow
