#include "comparison.hpp"

#include <algorithm>
#include <type_traits>

namespace tnt_tensorflow {
namespace {

static_assert(std::is_trivially_copyable_v<Call> && std::has_unique_object_representations_v<Call>);

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce: return "all_reduce";
    case Kind::all_gather: return "all_gather";
    case Kind::broadcast: return "broadcast";
    case Kind::all_to_all: return "all_to_all";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::gradients: return "the reduction of the gradients";
    case Kind::join: return "join";
  }
  return "an unknown collective";
}

const char* type_name(std::int32_t type) {
  switch (type) {
    case TF_FLOAT: return "float32";
    case TF_DOUBLE: return "float64";
    case TF_HALF: return "float16";
    case TF_BFLOAT16: return "bfloat16";
    case TF_INT8: return "int8";
    case TF_INT16: return "int16";
    case TF_INT32: return "int32";
    case TF_INT64: return "int64";
    case TF_UINT8: return "uint8";
    case TF_UINT16: return "uint16";
    case TF_UINT32: return "uint32";
    case TF_UINT64: return "uint64";
    case TF_BOOL: return "bool";
    case TF_COMPLEX64: return "complex64";
    case TF_COMPLEX128: return "complex128";
    default: return "another type";
  }
}

std::string choice_name(const Call& call) {
  constexpr std::array names = {"sum", "avg", "min", "max", "prod"};
  static_assert(TNT_SUM == 0 && TNT_AVG == 1 && TNT_MIN == 2 && TNT_MAX == 3 && TNT_PROD == 4);
  if (call.kind == Kind::broadcast) return " from root " + std::to_string(call.choice);
  if (call.kind != Kind::all_reduce && call.kind != Kind::reduce_scatter) return "";
  const auto op = static_cast<std::size_t>(call.choice);
  return std::string(" with op ") + (op < names.size() ? names[op] : "?");
}

// Such as: all_reduce with op sum of 'loss', a float32 tensor of shape [2, 3]
std::string described(const Call& call) {
  std::string text = kind_name(call.kind);
  if (call.kind == Kind::join) return text;
  text.append(choice_name(call)).append(" of ");
  if (call.kind == Kind::gradients) return text.append(call.name.data());
  if (call.name[0] != '\0') text.append("'").append(call.name.data()).append("', ");
  text.append("a ").append(type_name(call.dtype)).append(" tensor of shape [");
  for (std::int64_t i = 0; i < call.dimensions; ++i) {
    text.append(i > 0 ? ", " : "").append(std::to_string(call.sizes[static_cast<std::size_t>(i)]));
  }
  return text.append("]");
}

// Whether two ranks may make these calls at the same time. The number of rows is each rank's own where data are not added up.
bool fit(const Call& a, const Call& b) {
  const bool any_rows = a.kind == Kind::all_gather || a.kind == Kind::all_to_all;
  const bool same_choice = a.choice == b.choice || a.kind == Kind::all_to_all;
  return a.kind == b.kind && a.dtype == b.dtype && same_choice && a.dimensions == b.dimensions && a.name == b.name &&
         std::equal(a.sizes.begin() + (any_rows ? 1 : 0), a.sizes.end(), b.sizes.begin() + (any_rows ? 1 : 0));
}

// Whether the zeros of ranks that have joined change nothing about the call.
bool allows_joined(const Call& call) {
  if (call.kind == Kind::gradients) return call.choice != no_reducer;
  return call.kind == Kind::all_reduce && (call.choice == TNT_SUM || call.choice == TNT_AVG);
}

// What is wrong with the calls; empty if nothing is.
std::string fault(const std::vector<Call>& calls) {
  const auto active = std::ranges::find_if(calls, [](const Call& call) { return call.kind != Kind::join; });
  if (active == calls.end()) return "";
  const auto rank_of = [&](auto call) { return "rank " + std::to_string(call - calls.begin()); };
  const auto joined = std::ranges::find(calls, Kind::join, &Call::kind);
  if (joined != calls.end() && !allows_joined(*active)) {
    return rank_of(joined) + " has joined while " + rank_of(active) + " calls " + described(*active) +
           (active->kind == Kind::gradients ? " for the first time: a rank must take a first step before it joins"
                                            : ": ranks that have joined take part in sums and averages only");
  }
  const auto other =
      std::find_if(active, calls.end(), [&](const Call& call) { return call.kind != Kind::join && !fit(call, *active); });
  if (other == calls.end()) return "";
  return rank_of(other) + " calls " + described(*other) + " while " + rank_of(active) + " calls " + described(*active) +
         ": all ranks must make the same calls in the same order";
}

}  // namespace

Call call_of(Kind kind, const TF_Tensor* tensor, const Dims& dims, std::int64_t choice,
             const std::array<char, max_name>& name) {
  Call call;
  call.kind = kind;
  call.dtype = TF_TensorType(tensor);
  call.choice = choice;
  call.dimensions = dims.count;
  call.sizes = dims.sizes;
  call.name = name;
  return call;
}

std::vector<Call> meet(TF_OpKernelContext* context, tnt_comm_t comm, const Call& own) {
  int size = 0;
  tnt_status_t status = tnt_comm_size(comm, &size);
  std::vector<Call> calls(static_cast<std::size_t>(std::max(size, 0)));
  if (status == TNT_SUCCESS) status = tnt_all_gather(comm, &own, calls.data(), sizeof(Call), TNT_UINT8, nullptr, nullptr);
  if (status != TNT_SUCCESS) {
    fail(context, status);
    return {};
  }
  if (const std::string text = fault(calls); !text.empty()) {
    fail(context, tnt_status_name(TNT_MISMATCH), text, TF_FAILED_PRECONDITION);
    return {};
  }
  return calls;
}

}  // namespace tnt_tensorflow
