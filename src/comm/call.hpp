// The description of a rank's call: every collective compares it across ranks, and every error shows it.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"

namespace tnt {

// All ranks of a communicator must make the same calls in the same order.
struct Call {
  enum Kind : std::uint32_t { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, send, recv };
  Kind kind = barrier;
  tnt_dtype_t dtype = TNT_UINT8;
  tnt_op_t op = TNT_SUM;
  std::int32_t root = 0;  // of send and recv: the peer
  std::uint64_t count = 0;

  bool operator==(const Call&) const = default;
};

// A hash of the call and its number: different calls have different signatures, with negligible exceptions.
[[nodiscard]] constexpr std::uint64_t signature(const Call& call, std::uint64_t number) noexcept {
  std::uint64_t small = call.kind;
  small = small * 64 + static_cast<std::uint64_t>(call.dtype);
  small = small * 64 + static_cast<std::uint64_t>(call.op);
  small = small * 65536 + static_cast<std::uint64_t>(call.root);
  return (small * 0x9e3779b97f4a7c15U ^ call.count) * 0xbf58476d1ce4e5b9U + number;
}

[[nodiscard]] const char* kind_name(Call::Kind kind) noexcept;  // "all_reduce"
[[nodiscard]] std::string describe(const Call& call);           // "all_reduce sum of 10 float32"

}  // namespace tnt
