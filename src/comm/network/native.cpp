// The network's own collectives. Calls are compared as before all others, while the network works: who waits for a collective
// of other ranks than it thinks ends by the abort of those that found the difference.
#include <algorithm>
#include <array>

#include "comm/communicator.hpp"
#include "comm/network/algorithms/partial_sums.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/messages/chunks.hpp"

namespace tnt {
namespace {

// Of data that must be packed: large enough for the network's best algorithm, while the next chunk is packed.
constexpr std::size_t packed_chunk_bytes = std::size_t{4} * 1024 * 1024;

}  // namespace

// Partial sums are in float32 for 16-bit types, as in our own algorithms. Without the caller's memory only an all_reduce is
// worth it: it needs staging memory of one chunk, and the others of all ranks' data.
bool NetworkCommunicator::takes_native(const Call& call, std::size_t bytes) const {
  if (!native_ || group_.size() == 1 || !native_choice_.takes(call.kind, bytes)) return false;
  if (call.kind == Call::all_reduce) {
    const tnt_dtype_t dtype = dtype_size(call.dtype) == 2 ? TNT_FLOAT32 : call.dtype;
    return PartialSums::can(call.dtype, call.op) && native_->reduces(dtype, call.op == TNT_AVG ? TNT_SUM : call.op);
  }
  const bool fits = group_.world->network().takes_callers_memory() && bytes <= max_message_bytes / group_.size();
  return fits && (call.kind == Call::all_gather || native_->reduces(call.dtype, call.op));
}

void NetworkCommunicator::run_natively(const Call& call, const CallContext& context,
                                       const std::function<std::unique_ptr<Request>()>& start) {
  Phases phases(context);
  handshake_.begin(call, context);
  RequestBatch batch(group_);
  batch.add(start(), true);
  handshake_.finish();
  handshake_.wait(batch);
  phases.end(Phase::reduce);
  handshake_.end();
}

// Two chunks are in flight if the data must be packed. A tensor of the wire type is one chunk, in the caller's memory.
void NetworkCommunicator::all_reduce_natively(const FusedBuffer& fused, const Call& call, const CallContext& context) {
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t first = 0;
    std::size_t count = 0;
    StagingBuffer data;
    RequestBatch batch;
  };
  Phases phases(context);
  const PartialSums sums(fused, call.op, group_.size());
  const bool callers = sums.are_results() && group_.world->network().takes_callers_memory() &&
                       fused.in_place(0, fused.count()) != nullptr && fused.out_in_place(0, fused.count()) != nullptr;
  const std::size_t per_chunk = (callers ? max_message_bytes : packed_chunk_bytes) / sums.size();
  const std::size_t chunks = divided_up(fused.count(), per_chunk);
  std::array<std::optional<Chunk>, 2> in_flight;
  handshake_.begin(call, context);
  for (std::size_t i = 0; i < chunks + 1; ++i) {
    if (i < chunks) {
      Chunk& chunk = in_flight[i % 2].emplace(group_);
      chunk.first = i * per_chunk;
      chunk.count = std::min(per_chunk, fused.count() - chunk.first);
      chunk.data =
          callers ? callers_memory(fused.out_in_place(chunk.first, chunk.count)) : staging_.acquire(chunk.count * sums.size());
      if (!callers) sums.pack(chunk.first, chunk.count, chunk.data.get(), staging_);
      phases.end(Phase::pack);
      const void* in = callers ? fused.in_place(chunk.first, chunk.count) : chunk.data.get();
      chunk.batch.add(
          native_->all_reduce(in, chunk.data.get(), chunk.count, sums.dtype(), call.op == TNT_AVG ? TNT_SUM : call.op,
                              callers ? nullptr : std::shared_ptr<void>(chunk.data, chunk.data.get())),
          callers);
    }
    if (i == 0) handshake_.finish();
    if (i == 0) continue;
    Chunk& chunk = *in_flight[(i - 1) % 2];
    handshake_.wait(chunk.batch);
    phases.end(Phase::reduce);
    const StagingBuffer result = sums.are_results() ? chunk.data : staging_.acquire(chunk.count * sums.result_size());
    sums.finish(result.get(), chunk.data.get(), chunk.count);
    if (!callers) fused.unpack(chunk.first, chunk.count, result.get());
    phases.end(Phase::unpack);
    in_flight[(i - 1) % 2].reset();
  }
  handshake_.end();
}

}  // namespace tnt
