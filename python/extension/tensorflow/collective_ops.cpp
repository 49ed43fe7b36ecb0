// TntAllReduce and TntBroadcast: a collective on one tensor, as a blocking op. A blocking op occupies one of TensorFlow's
// threads, so all such ops of a graph must have one order, the same on all ranks (tarantella/keras/reduction/graph_order.py).
#include <memory>

#include "kernel.hpp"

namespace tnt_tensorflow {
namespace {

struct Attributes {
  std::int64_t communicator = 0;
  std::int64_t choice = 0;  // TntAllReduce: tnt_op_t; TntBroadcast: the root
};

void* create(TF_OpKernelConstruction* construction, const char* choice) {
  auto attributes = std::make_unique<Attributes>();
  const bool read = read_attributes(construction, {{"communicator", &attributes->communicator}, {choice, &attributes->choice}});
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
void run(void* kernel, TF_OpKernelContext* context, Collective&& collective) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  const auto attachment = find_communicator(attributes.communicator);
  if (!attachment) return fail(context, "TNT_INVALID_ARGUMENT", "this graph was made for a job that has ended");
  const Status status;
  const Tensor in = input(context, 0, status);
  if (!passed(context, status)) return;
  const Tensor out = allocate_like(context, in.get(), status);
  if (!passed(context, status)) return;
  const tnt_status_t done = collective(attachment->comm(), in.get(), out.get(), attributes.choice);
  if (done != TNT_SUCCESS) fail(context, done);
}

void all_reduce(void* kernel, TF_OpKernelContext* context) {
  run(kernel, context, [](tnt_comm_t comm, const TF_Tensor* in, TF_Tensor* out, std::int64_t op) {
    return tnt_all_reduce(comm, TF_TensorData(in), TF_TensorData(out), static_cast<std::size_t>(TF_TensorElementCount(in)),
                          dtype_of(in), static_cast<tnt_op_t>(op), nullptr, nullptr);
  });
}

void broadcast(void* kernel, TF_OpKernelContext* context) {
  run(kernel, context, [](tnt_comm_t comm, const TF_Tensor* in, TF_Tensor* out, std::int64_t root) {
    return tnt_broadcast(comm, TF_TensorData(in), TF_TensorData(out), TF_TensorByteSize(in), TNT_UINT8, static_cast<int>(root),
                         nullptr, nullptr);
  });
}

void register_collective(const char* name, const char* choice, const char* types,
                         void* (*create_kernel)(TF_OpKernelConstruction*), void (*compute)(void*, TF_OpKernelContext*)) {
  register_op({.name = name,
               .inputs = {"input: T"},
               .outputs = {"output: T"},
               .attributes = {"communicator: int", choice, types},
               .infer_shapes = same_shapes_from<0>});
  register_kernel(name, TF_NewKernelBuilder(name, "CPU", create_kernel, compute, delete_attributes<Attributes>));
}

struct Registration {
  Registration() {
    register_collective("TntAllReduce", "op: int", "T: {float, double, half, bfloat16, int8, uint8, int32, int64}",
                        create_all_reduce, all_reduce);
    register_collective("TntBroadcast", "root: int",
                        "T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, "
                        "complex64, complex128}",
                        create_broadcast, broadcast);
  }
};
const Registration registration;

}  // namespace
}  // namespace tnt_tensorflow
