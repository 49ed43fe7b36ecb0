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

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t reducer = 0;
  std::int64_t bucket = 0;
  std::vector<std::int64_t> tensors;  // TntStart only
};

// with_tensors: reads the list of tensors, too.
template <bool with_tensors>
void* create(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  if (!read_attributes(construction, {{"reducer", &attributes->reducer}, {"bucket", &attributes->bucket}})) return nullptr;
  if (!with_tensors) return attributes.release();
  const Status status;
  std::int32_t size = 0;
  std::int32_t total = 0;
  TF_OpKernelConstruction_GetAttrSize(construction, "tensors", &size, &total, status.get());
  attributes->tensors.resize(static_cast<std::size_t>(size));
  if (status.ok()) {
    TF_OpKernelConstruction_GetAttrInt64List(construction, "tensors", attributes->tensors.data(), size, status.get());
  }
  if (status.ok()) return attributes.release();
  TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

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
  std::vector<const void*> gradients;
  std::vector<void*> outs;
  const std::size_t count = attributes.tensors.size();
  held.reserve(2 * count);
  gradients.reserve(count);
  outs.reserve(count);
  for (int i = 0; i < static_cast<int>(count); ++i) {
    int forwarded = -1;
    Tensor out = forward_or_allocate(context, std::array{i + 1}, i, status, &forwarded);
    if (!passed(context, status)) return;
    outs.push_back(TF_TensorData(out.get()));
    held.push_back(std::move(out));
    if (forwarded >= 0) {  // the gradient lies there already
      gradients.push_back(outs.back());
      continue;
    }
    Tensor in = input(context, i + 1, status);
    if (!passed(context, status)) return;
    gradients.push_back(TF_TensorData(in.get()));
    held.push_back(std::move(in));
  }
  attachment->hold(attributes.bucket, std::move(held));
  const std::vector<std::size_t> tensors(attributes.tensors.begin(), attributes.tensors.end());
  const std::vector<double> scales(tensors.size(), scale);
  const tnt_status_t ready = tnt_reducer_ready_many(attachment->reducer(), tensors.data(), gradients.data(), outs.data(),
                                                    scales.data(), tensors.size(), stream);
  if (ready != TNT_SUCCESS) fail(context, ready);
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

struct Registration {
  Registration() {
    register_op({.name = "TntStart",
                 .inputs = {"scale: double", "gradients: T"},
                 .outputs = {"started: T"},
                 .attributes = {"reducer: int", "bucket: int", "tensors: list(int)", types},
                 .infer_shapes = same_shapes_from<1>});
    register_op({.name = "TntFinish",
                 .inputs = {"started: T"},
                 .outputs = {"reduced: T"},
                 .attributes = {"reducer: int", "bucket: int", types},
                 .infer_shapes = same_shapes_from<0>});
    const auto kernel = [](const char* op, const char* device, auto* create_kernel, auto* compute) {
      return TF_NewKernelBuilder(op, device, create_kernel, compute, delete_attributes<Attributes>);
    };
    register_kernel("TntStart", kernel("TntStart", "CPU", create<true>, start<Where::host>));
    register_kernel("TntFinish", kernel("TntFinish", "CPU", create<false>, finish<Where::host>));
    TF_KernelBuilder* start_on_gpu = kernel("TntStart", "GPU", create<true>, start<Where::device>);
    TF_KernelBuilder_HostMemory(start_on_gpu, "scale");
    register_kernel("TntStartGpu", start_on_gpu);
    register_kernel("TntFinishGpu", kernel("TntFinish", "GPU", create<false>, finish<Where::device>));
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
