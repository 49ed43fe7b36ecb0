// The description of a rank's call: what ranks compare, record and show in errors, and the memory that a transport needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/dtype.hpp"

namespace tnt {

class FusedBuffer;

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
  std::int32_t root = 0;          // of send and recv: the peer
  std::uint64_t count = 0;        // of the uneven forms: of all ranks; 0 of all_to_all_v, where each rank has others
  std::uint64_t counts_hash = 0;  // of the uneven forms: of each rank's count

  bool operator==(const Call&) const = default;
};

// A call with this rank's memory: Communicator::run and DeviceCommunicator::run need no more. What it points to must stay until
// the call has ended.
struct Collective : Call {
  const void* in = nullptr;
  void* out = nullptr;
  std::span<const std::size_t> counts = {};       // of the uneven forms: of all ranks; of all_to_all_v, those of this rank
  std::span<const std::size_t> recv_counts = {};  // of all_to_all_v
  std::optional<double> scale = std::nullopt;     // of in, in an all_reduce: all ranks have one, each its own
  const FusedBuffer* fused = nullptr;             // of an all_reduce in host memory, in place of in, out and scale
  // As all_reduce, but each result is needed by one rank: owners[i] needs that of the i-th tensor of `fused`, whose out is
  // nullptr on the other ranks. The tensors are in the order of their owners. The same bits.
  std::span<const int> owners = {};
};

// A hash of the call and its number: different calls have different signatures, with negligible exceptions.
[[nodiscard]] constexpr std::uint64_t signature(const Call& call, std::uint64_t number) noexcept {
  std::uint64_t small = call.kind;
  small = small * 64 + static_cast<std::uint64_t>(call.dtype);
  small = small * 64 + static_cast<std::uint64_t>(call.op);
  small = small * 65536 + static_cast<std::uint64_t>(call.root);
  return (small * 0x9e3779b97f4a7c15U ^ call.count ^ call.counts_hash) * 0xbf58476d1ce4e5b9U + number;
}

// A call of an uneven form; counts: of all ranks.
[[nodiscard]] Call uneven_call(Call::Kind kind, std::span<const std::size_t> counts, tnt_dtype_t dtype, tnt_op_t op = TNT_SUM);
// Whether the kind combines elements of several ranks.
[[nodiscard]] bool reduces(Call::Kind kind) noexcept;
[[nodiscard]] constexpr bool is_message(Call::Kind kind) noexcept { return kind == Call::send || kind == Call::recv; }
[[nodiscard]] const char* kind_name(Call::Kind kind) noexcept;  // "all_reduce"
[[nodiscard]] std::string describe(const Call& call);           // "all_reduce sum of 10 float32"

}  // namespace tnt
