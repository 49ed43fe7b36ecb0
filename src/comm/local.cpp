#include "comm/local.hpp"

#include <cstring>

#include "base/clock.hpp"

namespace tnt {
namespace {

void copy(const void* in, void* out, std::size_t count, tnt_dtype_t dtype) { scale(out, in, count, dtype, 1.0); }

}  // namespace

void LocalCommunicator::check() const {
  if (!ending_->set) return;
  const std::scoped_lock lock(ending_->mutex);
  throw Error(*ending_->error);
}

void LocalCommunicator::all_reduce(const Run& run, tnt_op_t /*op*/, const CallContext& context) {
  check();
  const std::int64_t begin = now_ns();
  for (const Piece& piece : run.pieces()) {
    if (piece.out != nullptr) scale(piece.out, piece.in, piece.count, run.dtype(), piece.scale);
  }
  if (context.observer != nullptr) context.observer->phase("unpack", begin, now_ns());
}

void LocalCommunicator::reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t /*op*/,
                                       const CallContext& /*context*/) {
  check();
  copy(in, out, count, dtype);
}

void LocalCommunicator::all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                   const CallContext& /*context*/) {
  check();
  copy(in, out, count, dtype);
}

void LocalCommunicator::broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int /*root*/,
                                  const CallContext& /*context*/) {
  check();
  copy(in, out, count, dtype);
}

void LocalCommunicator::all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                   const CallContext& /*context*/) {
  check();
  copy(in, out, count, dtype);
}

// The only rank there is cannot be a peer of itself: callers have checked that.
void LocalCommunicator::send(const void* /*in*/, std::size_t /*count*/, tnt_dtype_t /*dtype*/, int to,
                             const CallContext& /*context*/) {
  fail(TNT_INVALID_ARGUMENT, "send to rank {}: there is one rank", to);
}

void LocalCommunicator::recv(void* /*out*/, std::size_t /*count*/, tnt_dtype_t /*dtype*/, int from,
                             const CallContext& /*context*/) {
  fail(TNT_INVALID_ARGUMENT, "recv from rank {}: there is one rank", from);
}

void LocalCommunicator::barrier(const CallContext& /*context*/) { check(); }

std::unique_ptr<Communicator> LocalCommunicator::split(int color, int /*key*/, const CallContext& /*context*/) {
  check();
  if (color < 0) return nullptr;
  return std::unique_ptr<Communicator>(new LocalCommunicator(ending_));
}

void LocalCommunicator::abort(tnt_status_t status, const std::string& sentence) noexcept {
  const std::scoped_lock lock(ending_->mutex);
  if (ending_->error) return;
  ending_->error.emplace(status, sentence);
  ending_->set = true;
}

}  // namespace tnt
