#include "comm/local.hpp"

#include <algorithm>
#include <array>

#include "comm/communicator.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

// A sum over one rank, rounded as a sum over several ranks.
void reduce_alone(const TensorView& view, tnt_dtype_t own, tnt_dtype_t wire) {
  if (own == wire) return scale(view.out, own, view.in, own, view.count, view.scale);
  alignas(64) std::array<std::byte, 4096> block;  // NOLINT(*-member-init): written before it is read
  const std::size_t per_block = block.size() / dtype_size(wire);
  const std::size_t size = dtype_size(own);
  for (std::size_t at = 0; at < view.count; at += per_block) {
    const std::size_t part = std::min(per_block, view.count - at);
    const auto* in = static_cast<const std::byte*>(view.in);
    scale(block.data(), wire, in == nullptr ? nullptr : in + at * size, own, part, view.scale);
    scale(static_cast<std::byte*>(view.out) + at * size, own, block.data(), wire, part, 1.0);
  }
}

// As on several ranks: a logical operation makes truth values of what it gets.
void make_truth_values(void* values, std::size_t count, tnt_dtype_t dtype, tnt_op_t op) {
  const void* const source = values;
  if (needs_integers(op)) tnt::reduce(values, {&source, 1}, count, dtype, op);
}

}  // namespace

std::optional<Error> LocalCommunicator::async_error() const noexcept {
  for (AbortState* state : {job_.get(), own_.get()}) {
    if (!state->set) continue;
    const std::scoped_lock lock(state->mutex);
    return state->error;
  }
  return std::nullopt;
}

// Each collective calls this: without an error, it makes no optional<Error>.
void LocalCommunicator::check() const {
  if (!job_->set && !own_->set) return;
  throw Error(*async_error());
}

void LocalCommunicator::all_reduce(const FusedBuffer& fused, tnt_op_t op, const CallContext& context) {
  Phases phases(context);
  for (const TensorView& view : fused.views()) {
    if (view.out == nullptr) continue;
    reduce_alone(view, view.dtype.value_or(fused.dtype()), fused.dtype());
    make_truth_values(view.out, view.count, fused.dtype(), op);
  }
  phases.end(Phase::unpack);
}

void LocalCommunicator::run(const Collective& call, const CallContext& context) {
  if (is_message(call.kind)) {  // a single rank has no peer; callers check that
    fail(TNT_INVALID_ARGUMENT, "{} {} rank {}: there is one rank", kind_name(call.kind),
         call.kind == Call::send ? "to" : "from", call.root);
  }
  check();
  if (call.kind == Call::barrier) return;
  if (call.kind == Call::all_reduce) return all_reduce(ReducedTensors(call, 0).fused(), call.op, context);
  const std::size_t count = call.counts.empty() ? call.count : call.counts[0];
  scale(call.out, call.dtype, call.in, call.dtype, count, 1.0);
  if (reduces(call.kind)) make_truth_values(call.out, count, call.dtype, call.op);
}

std::unique_ptr<LocalCommunicator> LocalCommunicator::make_part() const {
  auto part = std::unique_ptr<LocalCommunicator>(new LocalCommunicator(job_));
  part->set_error_scope(error_scope());
  return part;
}

std::unique_ptr<Communicator> LocalCommunicator::split(int color, int /*key*/, const CallContext& /*context*/) {
  check();
  return color < 0 ? nullptr : make_part();
}

std::unique_ptr<Communicator> LocalCommunicator::duplicate(const CallContext& /*context*/) {
  check();
  auto same = make_part();
  same->own_ = own_;
  return same;
}

void LocalCommunicator::set_error_scope(ErrorScope scope) {
  if (scope == error_scope()) return;
  own_ = scope == ErrorScope::job ? job_ : std::make_shared<AbortState>();
}

std::unique_ptr<Communicator> LocalCommunicator::shrink(const CallContext& /*context*/) {
  if (was_shrunk_) fail(TNT_INVALID_ARGUMENT, "this communicator was shrunk before: shrink the one that came of it");
  was_shrunk_ = true;
  return make_part();
}

void LocalCommunicator::abort(tnt_status_t status, const std::string& message) noexcept {
  const std::scoped_lock lock(own_->mutex);
  if (own_->error) return;
  own_->error.emplace(status, message);
  own_->set = true;
}

}  // namespace tnt
