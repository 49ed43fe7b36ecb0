// TntAllReduce and TntBroadcast: a collective on one tensor, as a blocking op. A blocking op occupies one of TensorFlow's
// threads, so all such ops of a graph must have one order, the same on all ranks (tarantella/keras/reduction/graph_order.py).
// TntMeet tells ranks that have joined of gradients that the others will reduce. TntJoin: a rank without data of its own takes
// part in the others' sums, until all ranks have joined or until the others reduce gradients.
#include <algorithm>
#include <memory>

#include "comparison.hpp"
#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t communicator = 0;
  std::int64_t choice = 0;   // TntAllReduce: tnt_op_t; TntBroadcast: the root
  std::int64_t compare = 0;  // whether ranks compare the whole call first: the library compares counts and types, not shapes
  std::array<char, max_name> name{};
};

void* create(TF_OpKernelConstruction* construction, const char* choice) {
  auto attributes = std::make_unique<Attributes>();
  const bool read = read_attributes(construction, {{"communicator", &attributes->communicator},
                                                   {choice, &attributes->choice},
                                                   {"compare", &attributes->compare}}) &&
                    read_text(construction, "tensor", &attributes->name);
  return read ? attributes.release() : nullptr;
}

void* create_all_reduce(TF_OpKernelConstruction* construction) { return create(construction, "op"); }
void* create_broadcast(TF_OpKernelConstruction* construction) { return create(construction, "root"); }

// An output with the type and shape of the input.
Tensor allocate_like(TF_OpKernelContext* context, const TF_Tensor* in, const Status& status) {
  const Dims dims = dims_of(in, status);
  if (!status.ok()) return nullptr;
  return Tensor(
      TF_AllocateOutput(context, 0, TF_TensorType(in), dims.sizes.data(), dims.count, TF_TensorByteSize(in), status.get()));
}

template <typename Collective>
void run(void* kernel, TF_OpKernelContext* context, Kind kind, Collective&& collective) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  const Status status;
  const Tensor in = input(context, 0, status);
  if (!passed(context, status)) return;
  if (attributes.compare != 0) {
    const Dims dims = dims_of(in.get(), status);
    if (!passed(context, status)) return;
    const Call own = call_of(kind, in.get(), dims, attributes.choice, attributes.name);
    if (meet(context, attachment->comm(), own).empty()) return;
  }
  const Tensor out = allocate_like(context, in.get(), status);
  if (!passed(context, status)) return;
  const tnt_status_t done = collective(attachment->comm(), in.get(), out.get(), attributes.choice);
  if (done != TNT_SUCCESS) fail(context, done);
}

void all_reduce(void* kernel, TF_OpKernelContext* context) {
  run(kernel, context, Kind::all_reduce, [](tnt_comm_t comm, const TF_Tensor* in, TF_Tensor* out, std::int64_t op) {
    return tnt_all_reduce(comm, TF_TensorData(in), TF_TensorData(out), static_cast<std::size_t>(TF_TensorElementCount(in)),
                          dtype_of(in), static_cast<tnt_op_t>(op), nullptr, nullptr);
  });
}

void broadcast(void* kernel, TF_OpKernelContext* context) {
  run(kernel, context, Kind::broadcast, [](tnt_comm_t comm, const TF_Tensor* in, TF_Tensor* out, std::int64_t root) {
    return tnt_broadcast(comm, TF_TensorData(in), TF_TensorData(out), TF_TensorByteSize(in), TNT_UINT8, static_cast<int>(root),
                         nullptr, nullptr);
  });
}

// A sum of the others', to which this rank adds zeros.
tnt_status_t add_zeros(tnt_comm_t comm, const Call& call) {
  const tnt_dtype_t dtype = dtype_of(call.dtype);
  const auto count = static_cast<std::size_t>(call.elements());
  std::vector<std::byte> zeros(count * tnt_dtype_size(dtype));
  return tnt_all_reduce(comm, zeros.data(), zeros.data(), count, dtype, static_cast<tnt_op_t>(call.choice), nullptr, nullptr);
}

// The rank that was the last to join: of those that met the others the fewest times, the highest.
std::int64_t last_joined(const std::vector<Call>& calls) {
  std::size_t last = 0;
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    if (calls[rank].meetings <= calls[last].meetings) last = rank;
  }
  return static_cast<std::int64_t>(last);
}

// Sets an output to a number.
void put(TF_OpKernelContext* context, int output, std::int64_t number) {
  const Status status;
  const Tensor out(TF_AllocateOutput(context, output, TF_INT64, nullptr, 0, sizeof number, status.get()));
  if (passed(context, status)) *static_cast<std::int64_t*>(TF_TensorData(out.get())) = number;
}

void join(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  const Status status;
  const Tensor meetings = input(context, 0, status);
  if (!passed(context, status)) return;
  Call own{.meetings = *static_cast<const std::int64_t*>(TF_TensorData(meetings.get()))};
  std::vector<Call> calls;
  auto active = calls.end();
  for (bool joins_sums = true; joins_sums;) {
    calls = meet(context, attachment->comm(), own);
    if (calls.empty()) return;
    ++own.meetings;
    active = std::ranges::find_if(calls, [](const Call& call) { return call.kind != Kind::join; });
    joins_sums = active != calls.end() && active->kind != Kind::gradients;
    const tnt_status_t done = joins_sums ? add_zeros(attachment->comm(), *active) : TNT_SUCCESS;
    if (done != TNT_SUCCESS) return fail(context, done);
  }
  put(context, 0, last_joined(calls));
  put(context, 1, active == calls.end() ? no_reducer : active->choice);
  put(context, 2, own.meetings);
}

void* create_join(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  return read_attributes(construction, {{"communicator", &attributes->communicator}}) ? attributes.release() : nullptr;
}

void meet_joined(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = communicator_of(context, attributes.communicator);
  if (!attachment) return;
  const Call own{.kind = Kind::gradients, .choice = attributes.choice, .name = attributes.name};
  if (!meet(context, attachment->comm(), own).empty()) put(context, 0, attributes.choice);
}

void* create_meet(TF_OpKernelConstruction* construction) {
  auto attributes = std::make_unique<Attributes>();
  const bool read =
      read_attributes(construction, {{"communicator", &attributes->communicator}, {"reducer", &attributes->choice}}) &&
      read_text(construction, "gradients", &attributes->name);
  return read ? attributes.release() : nullptr;
}

void register_collective(const char* name, const char* choice, const char* types,
                         void* (*create_kernel)(TF_OpKernelConstruction*), void (*compute)(void*, TF_OpKernelContext*)) {
  register_on_host<Attributes>({.name = name,
                                .inputs = {"input: T"},
                                .outputs = {"output: T"},
                                .attributes = {"communicator: int", choice, types, "compare: int = 0", "tensor: string = ''"},
                                .infer_shapes = same_shapes_from<0>},
                               create_kernel, compute);
}

struct Registration {
  Registration() {
    register_collective("TntAllReduce", "op: int", summed_type, create_all_reduce, all_reduce);
    register_collective("TntBroadcast", "root: int", any_type, create_broadcast, broadcast);
    register_on_host<Attributes>({.name = "TntJoin",
                                  .inputs = {"meetings: int64"},
                                  .outputs = {"last: int64", "reducer: int64", "met: int64"},
                                  .attributes = {"communicator: int"},
                                  .infer_shapes = no_shapes},
                                 create_join, join);
    register_on_host<Attributes>({.name = "TntMeet",
                                  .inputs = {},
                                  .outputs = {"met: int64"},
                                  .attributes = {"communicator: int", "reducer: int", "gradients: string"},
                                  .infer_shapes = no_shapes},
                                 create_meet, meet_joined);
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
