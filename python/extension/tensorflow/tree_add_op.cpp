// TntTreeAdd: adds lists of tensors, each with a weight, in a tree over the shards of a batch. TensorFlow's own additions are
// not used, because TensorFlow reorders them and changes bits. The op is stateless: TensorFlow may prune, merge or
// constant-fold it, and the same kernel gives the same bits.
#include <string>
#include <vector>

#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

// Inputs: the first list, then the other lists, then a vector of their weights.
struct Lists {
  int n;        // number of lists
  int tensors;  // number of tensors in each
  [[nodiscard]] int weights() const { return n * tensors; }
};

// Whether these inputs have the same type and shape. Releases all of them, so that their memory may become the output's.
bool are_alike(TF_OpKernelContext* context, const std::vector<int>& places, const Status& status) {
  const Tensor first = input(context, places[0], status);
  if (!status.ok()) return false;
  const Dims dims = dims_of(first.get(), status);
  for (const int place : places) {
    const Tensor other = status.ok() ? input(context, place, status) : nullptr;
    if (!status.ok() || TF_TensorType(other.get()) != TF_TensorType(first.get())) return false;
    const Dims others = dims_of(other.get(), status);
    if (others.count != dims.count || others.sizes != dims.sizes) return false;
  }
  return status.ok();
}

// The sum of tensor i of all lists.
bool add_tensors(TF_OpKernelContext* context, Lists lists, int i, const double* weights, const Status& status) {
  std::vector<int> places;
  for (int list = 0; list < lists.n; ++list) places.push_back(list * lists.tensors + i);
  if (!are_alike(context, places, status)) {
    if (status.ok()) {
      fail(context, "TNT_INVALID_ARGUMENT",
           "tree_add: tensors " + std::to_string(i) + " of the lists have different shapes or types");
    }
    return false;
  }
  const Tensor out = forward_or_allocate(context, places, i, status);
  std::vector<Tensor> held;
  std::vector<const void*> terms;
  for (const int place : places) {
    if (!status.ok()) return false;
    held.push_back(input(context, place, status));
    if (status.ok()) terms.push_back(TF_TensorData(held.back().get()));
  }
  if (!status.ok()) return false;
  const tnt_status_t added =
      tnt_add_scaled(terms.data(), weights, terms.size(), TF_TensorData(out.get()),
                     static_cast<std::size_t>(TF_TensorElementCount(out.get())), dtype_of(held[0].get()));
  if (added != TNT_SUCCESS) fail(context, added);
  return added == TNT_SUCCESS;
}

void add(void* /*kernel*/, TF_OpKernelContext* context) {
  const Status status;
  const int tensors = TF_NumOutputs(context);
  const Lists lists{.n = (TF_NumInputs(context) - 1) / tensors, .tensors = tensors};
  const Tensor weights = input(context, lists.weights(), status);
  if (!passed(context, status)) return;
  if (TF_TensorElementCount(weights.get()) != lists.n) {
    return fail(context, "TNT_INVALID_ARGUMENT",
                "tree_add: " + std::to_string(TF_TensorElementCount(weights.get())) + " weights of " + std::to_string(lists.n) +
                    " lists");
  }
  for (int i = 0; i < tensors; ++i) {
    if (!add_tensors(context, lists, i, static_cast<const double*>(TF_TensorData(weights.get())), status)) break;
  }
  (void)passed(context, status);
}

// The number of lists is the length of the weight vector, which Python knows when it makes the op.
void infer_shapes(TF_ShapeInferenceContext* inference, TF_Status* status) {
  const auto inputs = static_cast<int>(TF_ShapeInferenceContextNumInputs(inference));
  TF_ShapeHandle* weights = TF_NewShapeHandle();
  TF_DimensionHandle* length = TF_NewDimensionHandle();
  TF_ShapeInferenceContextGetInput(inference, inputs - 1, weights, status);
  std::int64_t lists = 0;
  if (TF_GetCode(status) == TF_OK && TF_ShapeInferenceContextRank(inference, weights) == 1) {
    TF_ShapeInferenceContextDim(inference, weights, 0, length);
    lists = TF_DimensionHandleValue(length);
  }
  if (lists > 0) {
    same_shapes(inference, 0, (inputs - 1) / static_cast<int>(lists), status);
  } else if (TF_GetCode(status) == TF_OK) {
    TF_ShapeInferenceContextSetUnknownShape(inference, status);
  }
  TF_DeleteDimensionHandle(length);
  TF_DeleteShapeHandle(weights);
}

struct Registration {
  Registration() {
    register_op({.name = "TntTreeAdd",
                 .inputs = {"first: T", "others: S", "weights: double"},
                 .outputs = {"sum: T"},
                 .attributes = {types, other_types},
                 .infer_shapes = infer_shapes,
                 .is_stateful = false});
    register_kernel("TntTreeAdd", TF_NewKernelBuilder("TntTreeAdd", "CPU", nullptr, add, nullptr));
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
