#include "comm/call.hpp"

#include <numeric>
#include <string_view>

#include "base/hash.hpp"

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
    case Call::reduce: return "reduce";
    case Call::gather: return "gather";
    case Call::scatter: return "scatter";
    case Call::reduce_scatter_v: return "reduce_scatter_v";
    case Call::all_gather_v: return "all_gather_v";
    case Call::all_to_all_v: return "all_to_all_v";
  }
  return "unknown call";
}

Call uneven_call(Call::Kind kind, std::span<const std::size_t> counts, tnt_dtype_t dtype, tnt_op_t op) {
  const std::string_view bytes(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  return {.kind = kind,
          .dtype = dtype,
          .op = op,
          .count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
          .counts = hash(bytes)};
}

bool reduces(Call::Kind kind) noexcept {
  return kind == Call::all_reduce || kind == Call::reduce_scatter || kind == Call::reduce || kind == Call::reduce_scatter_v;
}

std::string describe(const Call& call) {
  const char* name = kind_name(call.kind);
  switch (call.kind) {
    case Call::barrier: return name;
    case Call::all_to_all_v: return fmt::format("{} of {}", name, dtype_name(call.dtype));
    case Call::reduce:
      return fmt::format("{} {} of {} {} to rank {}", name, op_name(call.op), call.count, dtype_name(call.dtype), call.root);
    case Call::gather: return fmt::format("{} of {} {} to rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::scatter:
    case Call::broadcast: return fmt::format("{} of {} {} from rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::send: return fmt::format("{} of {} {} to rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::recv: return fmt::format("{} of {} {} from rank {}", name, call.count, dtype_name(call.dtype), call.root);
    case Call::all_gather:
    case Call::all_gather_v:
    case Call::all_to_all: return fmt::format("{} of {} {}", name, call.count, dtype_name(call.dtype));
    default: return fmt::format("{} {} of {} {}", name, op_name(call.op), call.count, dtype_name(call.dtype));
  }
}

}  // namespace tnt
