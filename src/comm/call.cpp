#include "comm/call.hpp"

#include <array>
#include <numeric>
#include <string_view>

#include "base/hash.hpp"

namespace tnt {
namespace {

struct KindText {
  const char* name;
  bool reduces = false;
  const char* peer = nullptr;  // between the data and the number of the root or peer
};

constexpr std::array<KindText, Call::all_to_all_v + 1> kinds{{
    {.name = "all_reduce", .reduces = true},
    {.name = "reduce_scatter", .reduces = true},
    {.name = "all_gather"},
    {.name = "broadcast", .peer = "from"},
    {.name = "all_to_all"},
    {.name = "barrier"},
    {.name = "send", .peer = "to"},
    {.name = "recv", .peer = "from"},
    {.name = "reduce", .reduces = true, .peer = "to"},
    {.name = "gather", .peer = "to"},
    {.name = "scatter", .peer = "from"},
    {.name = "reduce_scatter_v", .reduces = true},
    {.name = "all_gather_v"},
    {.name = "all_to_all_v"},
}};

// Memory that ranks share may hold any number.
constexpr KindText text_of(Call::Kind kind) noexcept {
  return kind < kinds.size() ? kinds[kind] : KindText{.name = "unknown call"};
}

}  // namespace

const char* kind_name(Call::Kind kind) noexcept { return text_of(kind).name; }

bool reduces(Call::Kind kind) noexcept { return text_of(kind).reduces; }

Call uneven_call(Call::Kind kind, std::span<const std::size_t> counts, tnt_dtype_t dtype, tnt_op_t op) {
  const std::string_view bytes(reinterpret_cast<const char*>(counts.data()), counts.size_bytes());
  return {.kind = kind,
          .dtype = dtype,
          .op = op,
          .count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
          .counts_hash = hash(bytes)};
}

std::string describe(const Call& call) {
  const KindText kind = text_of(call.kind);
  std::string text = kind.name;
  if (call.kind == Call::barrier) return text;
  if (kind.reduces) text += fmt::format(" {}", op_name(call.op));
  text += " of ";
  if (call.kind != Call::all_to_all_v) text += fmt::format("{} ", call.count);
  text += dtype_name(call.dtype);
  if (kind.peer != nullptr) text += fmt::format(" {} rank {}", kind.peer, call.root);
  return text;
}

}  // namespace tnt
