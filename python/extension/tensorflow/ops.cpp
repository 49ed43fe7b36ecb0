// The two TensorFlow ops of a bucket. TntStart marks its gradients ready and returns immediately; TntFinish waits for their
// sum. Every Finish of a step must depend on all its Starts, so that it cannot block a thread that a Start needs. On a GPU
// neither waits on the host: gradients are marked ready in the order of TensorFlow's stream, and the stream waits for their
// sum. TensorFlow computes on one stream, so the dependency there lets backward go on.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attachments.hpp"
#include "kernel.hpp"
#include "stream.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t reducer = 0;
  std::int64_t bucket = 0;
  std::vector<std::int64_t> tensors;  // TntStart only
};

Attributes* read_attributes(TF_OpKernelConstruction* construction, bool with_tensors) {
  auto attributes = std::make_unique<Attributes>();
  const Status status;
  TF_OpKernelConstruction_GetAttrInt64(construction, "reducer", &attributes->reducer, status.get());
  if (status.ok()) TF_OpKernelConstruction_GetAttrInt64(construction, "bucket", &attributes->bucket, status.get());
  if (status.ok() && with_tensors) {
    std::int32_t size = 0;
    std::int32_t total = 0;
    TF_OpKernelConstruction_GetAttrSize(construction, "tensors", &size, &total, status.get());
    attributes->tensors.resize(static_cast<std::size_t>(size));
    if (status.ok()) {
      TF_OpKernelConstruction_GetAttrInt64List(construction, "tensors", attributes->tensors.data(), size, status.get());
    }
  }
  if (status.ok()) return attributes.release();
  TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void* create_start(TF_OpKernelConstruction* construction) { return read_attributes(construction, true); }
void* create_finish(TF_OpKernelConstruction* construction) { return read_attributes(construction, false); }
void destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

// The state of a kernel; empty if the kernel has failed.
struct Reduction {
  std::shared_ptr<Attachment> attachment;
  tnt_stream_t stream = nullptr;
};

Reduction reduction_of(const Attributes& attributes, TF_OpKernelContext* context, Where where) {
  Reduction reduction{.attachment = find_attachment(attributes.reducer)};
  if (!reduction.attachment) {
    fail(context, "TNT_INVALID_ARGUMENT", "this step was made for a reducer that no longer exists: compile the model again");
  } else if (reduction.attachment->where() != where) {
    fail(context, "TNT_INVALID_ARGUMENT",
         where == Where::host ? "TensorFlow placed a bucket on the CPU whose reducer takes gradients in GPU memory: leave the "
                                "placement of gradients to Tarantella"
                              : "TensorFlow placed a bucket on a GPU whose reducer takes gradients in host memory: leave the "
                                "placement of gradients to Tarantella");
    reduction.attachment = nullptr;
  } else if (where == Where::device) {
    reduction.stream = stream_of(context);
    if (reduction.stream == nullptr) {
      fail(context, "TNT_UNSUPPORTED", "TensorFlow does not tell on which CUDA stream it runs this step");
      reduction.attachment = nullptr;
    }
  }
  return reduction;
}

template <Where where>
void start(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto [attachment, stream] = reduction_of(attributes, context, where);
  if (!attachment) return;
  const Status status;
  const Tensor scale_tensor = input(context, 0, status);
  if (!passed(context, status)) return;
  const double scale = *static_cast<const double*>(TF_TensorData(scale_tensor.get()));

  std::vector<Tensor> held;
  std::vector<std::pair<const void*, void*>> buffers;
  for (int i = 0; i < static_cast<int>(attributes.tensors.size()); ++i) {
    Tensor out = forward_or_allocate(context, std::array{i + 1}, i, status);
    if (!passed(context, status)) return;
    Tensor in = input(context, i + 1, status);
    if (!passed(context, status)) return;
    buffers.emplace_back(TF_TensorData(in.get()), TF_TensorData(out.get()));
    held.push_back(std::move(in));
    held.push_back(std::move(out));
  }
  attachment->hold(attributes.bucket, std::move(held));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const tnt_status_t ready = tnt_reducer_ready(attachment->reducer(), static_cast<std::size_t>(attributes.tensors[i]),
                                                 buffers[i].first, buffers[i].second, scale, stream);
    if (ready != TNT_SUCCESS) return fail(context, ready);
  }
}

template <Where where>
void finish(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto [attachment, stream] = reduction_of(attributes, context, where);
  if (!attachment) return;
  const tnt_status_t waited =
      tnt_reducer_wait_bucket(attachment->reducer(), static_cast<std::size_t>(attributes.bucket), stream);
  if (waited != TNT_SUCCESS) return fail(context, waited);  // buffers that the reducer may still write to stay held
  // On a GPU, TensorFlow may reuse their memory for later work on the stream, which now waits for the reducer.
  attachment->release(attributes.bucket);
  const Status status;
  for (int i = 0; i < TF_NumInputs(context); ++i) {
    const Tensor tensor = input(context, i, status);
    if (status.ok()) TF_SetOutput(context, i, tensor.get(), status.get());
    if (!passed(context, status)) return;
  }
}

// TensorFlow calls these when it loads the library. A failure shows up as "op not found" when the op is used.
struct Registration {
  Registration() {
    const Status status;
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("TntStart");
    TF_OpDefinitionBuilderAddInput(op, "scale: double");
    TF_OpDefinitionBuilderAddInput(op, "gradients: T");
    TF_OpDefinitionBuilderAddOutput(op, "started: T");
    TF_OpDefinitionBuilderAddAttr(op, "reducer: int");
    TF_OpDefinitionBuilderAddAttr(op, "bucket: int");
    TF_OpDefinitionBuilderAddAttr(op, "tensors: list(int)");
    TF_OpDefinitionBuilderAddAttr(op, types);
    // stateful; otherwise TensorFlow might fold, merge or prune it on one rank only
    TF_OpDefinitionBuilderSetIsStateful(op, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shapes_from<1>);
    TF_RegisterOpDefinition(op, status.get());

    op = TF_NewOpDefinitionBuilder("TntFinish");
    TF_OpDefinitionBuilderAddInput(op, "started: T");
    TF_OpDefinitionBuilderAddOutput(op, "reduced: T");
    TF_OpDefinitionBuilderAddAttr(op, "reducer: int");
    TF_OpDefinitionBuilderAddAttr(op, "bucket: int");
    TF_OpDefinitionBuilderAddAttr(op, types);
    TF_OpDefinitionBuilderSetIsStateful(op, true);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, same_shapes_from<0>);
    TF_RegisterOpDefinition(op, status.get());

    const auto add = [&](const char* name, TF_KernelBuilder* kernel) { TF_RegisterKernelBuilder(name, kernel, status.get()); };
    add("TntStart", TF_NewKernelBuilder("TntStart", "CPU", create_start, start<Where::host>, destroy));
    add("TntFinish", TF_NewKernelBuilder("TntFinish", "CPU", create_finish, finish<Where::host>, destroy));
    TF_KernelBuilder* start_on_gpu = TF_NewKernelBuilder("TntStart", "GPU", create_start, start<Where::device>, destroy);
    TF_KernelBuilder_HostMemory(start_on_gpu, "scale");
    add("TntStartGpu", start_on_gpu);
    add("TntFinishGpu", TF_NewKernelBuilder("TntFinish", "GPU", create_finish, finish<Where::device>, destroy));
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
