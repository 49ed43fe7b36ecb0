// Point-to-point messages as ops. TntSend and TntReceive start and return at once; TntReceived waits for one message, TntSent
// for all that this rank has sent. Messages of one pair of ranks and direction go in the order in which they were started, so
// the graph orders the starts. Each tensor travels with a label that the receiver compares (messages.hpp). A tensor travels as
// bytes: any type of fixed size. TntTask puts what a rank computed between messages on the timeline.
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t communicator = 0;
  std::int64_t peer = 0;
  std::int64_t message = 0;  // TntReceive and its TntReceived: a number of their own
  std::array<char, 120> label{};
};

void* create(TF_OpKernelConstruction* construction, std::initializer_list<const char*> names) {
  auto attributes = std::make_unique<Attributes>();
  for (const char* name : names) {
    if (name[0] == 'l') {
      if (!read_text(construction, name, &attributes->label)) return nullptr;
      continue;
    }
    std::int64_t& value = name[0] == 'c' ? attributes->communicator : name[0] == 'p' ? attributes->peer : attributes->message;
    if (!read_attributes(construction, {{name, &value}})) return nullptr;
  }
  return attributes.release();
}

void* create_send(TF_OpKernelConstruction* construction) { return create(construction, {"communicator", "peer", "label"}); }
void* create_receive(TF_OpKernelConstruction* construction) {
  return create(construction, {"communicator", "peer", "message", "label"});
}
void* create_received(TF_OpKernelConstruction* construction) { return create(construction, {"communicator", "message"}); }
void* create_sent(TF_OpKernelConstruction* construction) { return create(construction, {"communicator"}); }
void* create_task(TF_OpKernelConstruction* construction) { return create(construction, {"communicator", "label"}); }

void send(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  const Status status;
  Tensor in = input(context, 0, status);
  if (!passed(context, status)) return;
  const tnt_status_t started =
      attachment->messages().send(attachment->comm(), std::move(in), static_cast<int>(attributes.peer), attributes.label);
  if (started != TNT_SUCCESS) fail(context, started);
}

// Inputs: the shape, and a scalar of the type.
void receive(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  const Status status;
  const Tensor shape = input(context, 0, status);
  const Tensor like = status.ok() ? input(context, 1, status) : nullptr;
  if (!passed(context, status)) return;
  const std::span sizes(static_cast<const std::int64_t*>(TF_TensorData(shape.get())),
                        static_cast<std::size_t>(TF_TensorElementCount(shape.get())));
  const auto count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  Tensor out(TF_AllocateOutput(context, 0, TF_TensorType(like.get()), sizes.data(), static_cast<int>(sizes.size()),
                               static_cast<std::size_t>(count) * TF_TensorByteSize(like.get()), status.get()));
  if (!passed(context, status)) return;
  const tnt_status_t started = attachment->messages().receive(attachment->comm(), attributes.message, std::move(out),
                                                              static_cast<int>(attributes.peer), attributes.label);
  if (started != TNT_SUCCESS) fail(context, started);
}

void received(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  std::string mismatch;
  const tnt_status_t waited = attachment->messages().wait(attributes.message, &mismatch);
  if (!mismatch.empty()) return fail(context, tnt_status_name(waited), mismatch);
  if (waited != TNT_SUCCESS) return fail(context, waited);
  const Status status;
  const Tensor tensor = input(context, 0, status);
  if (status.ok()) TF_SetOutput(context, 0, tensor.get(), status.get());
  (void)passed(context, status);
}

void sent(void* kernel, TF_OpKernelContext* context) {
  const auto attachment = communicator_of(context, static_cast<const Attributes*>(kernel)->communicator);
  if (!attachment) return;
  const tnt_status_t waited = attachment->messages().wait_for_sends();
  if (waited != TNT_SUCCESS) fail(context, waited);
}

// Ends the task of this label; without a label, the first task of a step begins.
void task(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  if (attributes.label[0] == 0) {
    const tnt_status_t begun = attachment->messages().step_begins();
    if (begun != TNT_SUCCESS)
      fail(
          context, tnt_status_name(begun),
          "a step of the pipeline has failed before, and its messages are still under way, so no other step can follow in this "
          "job: start it again");
    return;
  }
  attachment->messages().task_ended(attributes.label.data());
}

struct Registration {
  Registration() {
    register_on_host<Attributes>({.name = "TntSend",
                                  .inputs = {"input: T"},
                                  .outputs = {},
                                  .attributes = {"communicator: int", "peer: int", "label: string", any_type},
                                  .infer_shapes = no_shapes},
                                 create_send, send);
    register_on_host<Attributes>({.name = "TntReceive",
                                  .inputs = {"shape: int64", "like: T"},
                                  .outputs = {"pending: T"},
                                  .attributes = {"communicator: int", "peer: int", "message: int", "label: string", any_type},
                                  .infer_shapes = unknown_shape},
                                 create_receive, receive);
    register_on_host<Attributes>({.name = "TntReceived",
                                  .inputs = {"pending: T"},
                                  .outputs = {"output: T"},
                                  .attributes = {"communicator: int", "message: int", any_type},
                                  .infer_shapes = same_shapes_from<0>},
                                 create_received, received);
    register_on_host<Attributes>(
        {.name = "TntSent", .inputs = {}, .outputs = {}, .attributes = {"communicator: int"}, .infer_shapes = no_shapes},
        create_sent, sent);
    register_on_host<Attributes>({.name = "TntTask",
                                  .inputs = {},
                                  .outputs = {},
                                  .attributes = {"communicator: int", "label: string"},
                                  .infer_shapes = no_shapes},
                                 create_task, task);
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
