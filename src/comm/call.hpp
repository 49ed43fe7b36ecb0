// The description of a rank's call: every collective compares it across ranks, and every error shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.hpp"

namespace tnt {

// All ranks of a communicator must make the same calls in the same order.
struct Call {
  enum Kind : std::uint32_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    all_to_all,
    barrier,
    send,
    recv,
    reduce,
    gather,
    scatter,
    reduce_scatter_v,
    all_gather_v,
    all_to_all_v
  };
  Kind kind = barrier;
  tnt_dtype_t dtype = TNT_UINT8;
  tnt_op_t op = TNT_SUM;
  std::int32_t root = 0;     // of send and recv: the peer
  std::uint64_t count = 0;   // of the uneven forms: of all ranks; 0 of all_to_all_v, where each rank has others
  std::uint64_t counts = 0;  // of the uneven forms: a hash of each rank's count

  bool operator==(const Call&) const = default;
};

// A hash of the call and its number: different calls have different signatures, with negligible exceptions.
[[nodiscard]] constexpr std::uint64_t signature(const Call& call, std::uint64_t number) noexcept {
  std::uint64_t small = call.kind;
  small = small * 64 + static_cast<std::uint64_t>(call.dtype);
  small = small * 64 + static_cast<std::uint64_t>(call.op);
  small = small * 65536 + static_cast<std::uint64_t>(call.root);
  return (small * 0x9e3779b97f4a7c15U ^ call.count ^ call.counts) * 0xbf58476d1ce4e5b9U + number;
}

// A call of an uneven form; counts: of all ranks.
[[nodiscard]] Call uneven_call(Call::Kind kind, std::span<const std::size_t> counts, tnt_dtype_t dtype, tnt_op_t op = TNT_SUM);
// Whether the kind combines elements of several ranks.
[[nodiscard]] bool reduces(Call::Kind kind) noexcept;
[[nodiscard]] const char* kind_name(Call::Kind kind) noexcept;  // "all_reduce"
[[nodiscard]] std::string describe(const Call& call);           // "all_reduce sum of 10 float32"

}  // namespace tnt
