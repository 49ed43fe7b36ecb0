#include "comm/dispatch_collective.hpp"

namespace tnt {

void dispatch_collective(Communicator& comm, const Call& call, const void* in, void* out, const CallContext& context) {
  const auto [kind, dtype, op, root, count, counts] = call;
  switch (kind) {
    case Call::all_reduce: {
      const TensorView view{.in = in, .out = out, .count = count};
      return comm.all_reduce(FusedBuffer({&view, 1}, dtype), op, context);
    }
    case Call::reduce_scatter: return comm.reduce_scatter(in, out, count, dtype, op, context);
    case Call::all_gather: return comm.all_gather(in, out, count, dtype, context);
    case Call::broadcast: return comm.broadcast(in, out, count, dtype, root, context);
    case Call::all_to_all: return comm.all_to_all(in, out, count, dtype, context);
    case Call::reduce: return comm.reduce(in, out, count, dtype, op, root, context);
    case Call::gather: return comm.gather(in, out, count, dtype, root, context);
    case Call::scatter: return comm.scatter(in, out, count, dtype, root, context);
    case Call::barrier: return comm.barrier(context);
    default: fail(TNT_INVALID_ARGUMENT, "{} is no collective of equal counts", kind_name(kind));
  }
}

}  // namespace tnt
