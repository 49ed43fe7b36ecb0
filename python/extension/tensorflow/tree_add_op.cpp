// TntTreeAdd: two lists of tensors added up, weighted, in a tree over the shards of a batch. TensorFlow's own additions will
// not do: it reorders a tree of them, which changes bits. It knows nothing of this op, which has no state: what is not needed
// is not computed, and where TensorFlow computes it once instead of twice, or beforehand, the kernel is the same, and so are
// the bits.
#include <algorithm>
#include <array>

#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

bool same_shape(const Dims& a, const Dims& b) { return a.count == b.count && a.sizes == b.sizes; }

double weight(TF_OpKernelContext* context, int index, const Status& status) {
  const Tensor tensor = input(context, index, status);
  return status.ok() ? *static_cast<const double*>(TF_TensorData(tensor.get())) : 0.0;
}

bool shapes_agree(TF_OpKernelContext* context, int a, int b, const Status& status) {
  const Tensor in_a = input(context, a, status);
  const Tensor in_b = status.ok() ? input(context, b, status) : nullptr;
  if (!status.ok()) return false;
  const Dims dims_a = dims_of(in_a.get(), status);
  return status.ok() && same_shape(dims_a, dims_of(in_b.get(), status));
}

// Inputs: a, then b, then their weights.
void add(void* /*kernel*/, TF_OpKernelContext* context) {
  const Status status;
  const int n = TF_NumInputs(context) / 2 - 1;
  const double weight_a = weight(context, 2 * n, status);
  const double weight_b = status.ok() ? weight(context, 2 * n + 1, status) : 0.0;
  for (int i = 0; i < n && status.ok(); ++i) {
    if (!shapes_agree(context, i, n + i, status)) {
      if (status.ok()) {
        return fail(context, "TNT_INVALID_ARGUMENT",
                    "tree_add: tensors " + std::to_string(i) + " of the two lists have different shapes");
      }
      break;
    }
    const Tensor out = forward_or_allocate(context, std::array{i, n + i}, i, status);
    const Tensor a = status.ok() ? input(context, i, status) : nullptr;
    const Tensor b = status.ok() ? input(context, n + i, status) : nullptr;
    if (!status.ok()) break;
    const tnt_status_t added =
        tnt_add_scaled(TF_TensorData(a.get()), weight_a, TF_TensorData(b.get()), weight_b, TF_TensorData(out.get()),
                       static_cast<std::size_t>(TF_TensorElementCount(out.get())), dtype_of(a.get()));
    if (added != TNT_SUCCESS) return fail(context, added);
  }
  (void)passed(context, status);
}

struct Registration {
  Registration() {
    const Status status;
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("TntTreeAdd");
    TF_OpDefinitionBuilderAddInput(op, "a: T");
    TF_OpDefinitionBuilderAddInput(op, "b: T");
    TF_OpDefinitionBuilderAddInput(op, "weight_a: double");
    TF_OpDefinitionBuilderAddInput(op, "weight_b: double");
    TF_OpDefinitionBuilderAddOutput(op, "sum: T");
    TF_OpDefinitionBuilderAddAttr(op, types);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, [](TF_ShapeInferenceContext* inference, TF_Status* result) {
      same_shapes(inference, 0, static_cast<int>(TF_ShapeInferenceContextNumInputs(inference)) / 2 - 1, result);
    });
    TF_RegisterOpDefinition(op, status.get());
    TF_RegisterKernelBuilder("TntTreeAdd", TF_NewKernelBuilder("TntTreeAdd", "CPU", nullptr, add, nullptr), status.get());
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
