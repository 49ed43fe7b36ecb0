// Checks of the arguments of collectives and messages. Each throws TNT_INVALID_ARGUMENT with what does not fit. Inline, because
// a small collective takes less than 50 ns.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "api/boundary.hpp"
#include "comm/communicator.hpp"
#include "common/dtype.hpp"

namespace tnt {

inline void check_dtype(tnt_dtype_t dtype) {
  if (is_float8(dtype)) {
    fail(TNT_INVALID_ARGUMENT, "{} is for the wire_dtype of a reducer only: move bytes as TNT_UINT8", dtype_name(dtype));
  }
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "dtype {} is not a tnt_dtype_t", static_cast<int>(dtype));
}

// blocks: how often the buffer has count elements.
inline void check_buffer(const void* buffer, const char* what, std::size_t count, tnt_dtype_t dtype, std::size_t blocks = 1) {
  check_dtype(dtype);
  constexpr std::size_t largest_element = 16;
  if (std::size_t bytes = 0; __builtin_mul_overflow(count, largest_element * blocks, &bytes)) {
    fail(TNT_INVALID_ARGUMENT, "count {} is too large", count);
  }
  if (count > 0) required(static_cast<const std::byte*>(buffer), what);
}

// Results are written while inputs are still read, so buffers must not overlap, unless in is the part of out that begins with
// element `in_place`. Counts: elements.
inline void check_overlap(const void* in, std::size_t in_count, const void* out, std::size_t out_count, tnt_dtype_t dtype,
                          std::optional<std::size_t> in_place) {
  if (in_count == 0 || out_count == 0) return;
  const std::size_t size = dtype_size(dtype);
  const auto from = reinterpret_cast<std::uintptr_t>(in);
  const auto to = reinterpret_cast<std::uintptr_t>(out);
  if (in_place && from == to + *in_place * size) return;
  const bool overlap = from < to ? to - from < in_count * size : from - to < out_count * size;
  if (!overlap) return;
  fail(TNT_INVALID_ARGUMENT,
       "in and out overlap: out begins {} bytes {} in. Use separate buffers, or in place those that the call's comment in "
       "tarantella.h names",
       from < to ? to - from : from - to, from < to ? "after" : "before");
}

// Buffers of a collective, of in_blocks and out_blocks times count elements.
inline void check_buffers(const void* in, std::size_t in_blocks, const void* out, std::size_t out_blocks, std::size_t count,
                          tnt_dtype_t dtype, std::optional<std::size_t> in_place) {
  check_buffer(in, "in", count, dtype, in_blocks);
  check_buffer(out, "out", count, dtype, out_blocks);
  check_overlap(in, in_blocks * count, out, out_blocks * count, dtype, in_place);
}

// The same size: in == out is in place.
inline void check_equal_buffers(const void* in, const void* out, std::size_t count, tnt_dtype_t dtype, std::size_t blocks = 1) {
  check_buffers(in, blocks, out, blocks, count, dtype, 0);
}

inline std::size_t size_of(const Communicator& communicator) { return static_cast<std::size_t>(communicator.size()); }

inline void check_op(tnt_op_t op, tnt_dtype_t dtype) {
  if (!is_op(op)) fail(TNT_INVALID_ARGUMENT, "op {} is not a tnt_op_t", static_cast<int>(op));
  if (!needs_integers(op) || !is_dtype(dtype) || is_integer(dtype)) return;
  fail(TNT_INVALID_ARGUMENT, "{} needs an integer dtype, not {}", op_name(op), dtype_name(dtype));
}

inline const std::byte* at(const void* buffer, std::size_t element, tnt_dtype_t dtype) {
  return static_cast<const std::byte*>(buffer) + element * dtype_size(dtype);
}

inline void check_rank(const Communicator& communicator, int rank, const char* what) {
  if (rank < 0 || rank >= communicator.size()) {
    fail(TNT_INVALID_ARGUMENT, "{} {} is not one of the communicator's {} ranks", what, rank, communicator.size());
  }
}

inline void check_peer(const Communicator& communicator, int peer, const char* what) {
  check_rank(communicator, peer, what);
  if (peer == communicator.rank()) fail(TNT_INVALID_ARGUMENT, "{} {} is the calling rank itself", what, peer);
}

// The counts that an uneven form points to.
struct RankCounts {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
};

// Of all kinds but the smallest, which ask the communicator nothing.
[[nodiscard]] std::shared_ptr<const RankCounts> check_with_ranks(const Communicator& communicator, Collective& call);

// Completes the call: the result, which is nullptr for most kinds, must live as long. Those of an uneven form are copies of all
// counts that begin where the call says.
[[nodiscard]] inline std::shared_ptr<const RankCounts> check_arguments(const Communicator& communicator, Collective& call) {
  if (call.kind == Call::barrier) return nullptr;
  if (call.kind != Call::all_reduce) return check_with_ranks(communicator, call);
  if (call.scale && !std::isfinite(*call.scale)) fail(TNT_INVALID_ARGUMENT, "scale is {}, not a finite number", *call.scale);
  check_op(call.op, call.dtype);
  check_equal_buffers(call.in, call.out, call.count, call.dtype);
  if (!call.scale || !is_integer(call.dtype)) return nullptr;
  fail(TNT_INVALID_ARGUMENT, "{} is not a floating-point type: scale it before", dtype_name(call.dtype));
}

}  // namespace tnt
