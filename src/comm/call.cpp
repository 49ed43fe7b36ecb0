#include "comm/call.hpp"

namespace tnt {

const char* kind_name(Call::Kind kind) noexcept {
  switch (kind) {
    case Call::all_reduce: return "all_reduce";
    case Call::reduce_scatter: return "reduce_scatter";
    case Call::all_gather: return "all_gather";
    case Call::broadcast: return "broadcast";
    case Call::all_to_all: return "all_to_all";
    case Call::barrier: return "barrier";
    case Call::send: return "send";
    case Call::recv: return "recv";
  }
  return "unknown call";
}

std::string describe(const Call& call) {
  const char* name = kind_name(call.kind);
  switch (call.kind) {
    case Call::barrier: return name;
    case Call::broadcast: return fmt::format("{} of {} {} from rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::send: return fmt::format("{} of {} {} to rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::recv: return fmt::format("{} of {} {} from rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::all_gather:
    case Call::all_to_all: return fmt::format("{} of {} {}", name, call.count, dtype_name(call.dtype));
    default: return fmt::format("{} {} of {} {}", name, op_name(call.op), call.count, dtype_name(call.dtype));
  }
}

}  // namespace tnt
