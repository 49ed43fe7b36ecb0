// all_reduce and reduce_scatter over a network.
#include <algorithm>
#include <array>
#include <cstring>

#include "comm/network/algorithms/block_exchange.hpp"
#include "comm/network/algorithms/doubling.hpp"
#include "comm/network/algorithms/halving.hpp"
#include "comm/network/algorithms/reduce_scatter.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/messages/chunks.hpp"
#include "common/memory.hpp"

namespace tnt {

// One chunk. start(): each member receives its slice from all others. advance(): it sums the slice and sends the
// result to all. finish() unpacks the received results.
class NetworkCommunicator::AllReduce {
 public:
  // root: the member that gets the result; none: all.
  AllReduce(NetworkCommunicator& comm, const FusedBuffer& fused, tnt_op_t op, std::optional<std::size_t> root, Phases& phases)
      : comm_(comm),
        group_(comm.group_),
        fused_(fused),
        op_(op),
        root_(root),
        phases_(phases),
        size_(dtype_size(fused.dtype())),
        takes_callers_(comm.group_.world->network().takes_callers_memory()) {
    const std::size_t min_slice = group_.one_node ? smallest_slice_on_one_node : smallest_slice;
    per_chunk_ = slice_bytes(fused.count() * size_, group_.size(), min_slice) * group_.size() / size_;
  }
  [[nodiscard]] std::size_t chunks() const { return divided_up(fused_.count(), per_chunk_); }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    chunk.first = index * per_chunk_;
    chunk.count = std::min(per_chunk_, fused_.count() - chunk.first);
    const void* in = takes_callers_ ? fused_.in_place(chunk.first, chunk.count) : nullptr;
    chunk.packed = in != nullptr ? callers_memory(in) : comm_.staging_.acquire(chunk.count * size_);
    const std::size_t own = slice(group_.self, chunk).bytes;
    chunk.arrived = comm_.staging_.acquire(own * group_.size());
    for (std::size_t member = 0; member < group_.size() && own > 0; ++member) {
      if (member != group_.self) chunk.scatter.receive({chunk.arrived, member * own, own}, member, scatter_tag);
    }
    if (in == nullptr) fused_.pack(chunk.first, chunk.count, chunk.packed.get());
    phases_.end(Phase::pack);
    for (std::size_t i = 1; i < group_.size(); ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      const BufferSlice part = slice(member, chunk);
      if (part.bytes > 0) chunk.scatter.send(part, member, scatter_tag);
    }
  }

  void advance(std::size_t index) {
    Chunk& chunk = *chunks_[index % chunks_in_flight];
    void* out = takes_callers_ ? fused_.out_in_place(chunk.first, chunk.count) : nullptr;
    chunk.result = out != nullptr ? callers_memory(out) : comm_.staging_.acquire(chunk.count * size_);
    comm_.handshake_.wait(chunk.scatter);  // if the call is in place, results arrive where the input was
    phases_.end(Phase::wait);
    for (std::size_t member = 0; member < group_.size(); ++member) {
      BufferSlice part = slice(member, chunk);
      part.buffer = chunk.result;
      if (member != group_.self && part.bytes > 0 && wanted_by(group_.self)) chunk.gather.receive(part, member, gather_tag);
    }
    const BufferSlice packed = slice(group_.self, chunk);
    const BufferSlice own{chunk.result, packed.offset, packed.bytes};
    const auto source = [&](std::size_t member) {
      return member == group_.self ? packed.data() : chunk.arrived.get() + member * own.bytes;
    };
    comm_.reduce_sources(own.data(), source, own.bytes / size_, fused_.dtype(), op_);
    phases_.end(Phase::reduce);
    for (std::size_t i = 1; i < group_.size() && own.bytes > 0; ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      if (wanted_by(member)) chunk.gather.send(own, member, gather_tag);
    }
  }

  void finish(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    comm_.handshake_.wait(chunk->gather);
    phases_.end(Phase::wait);
    if (!is_callers(chunk->result) && wanted_by(group_.self)) fused_.unpack(chunk->first, chunk->count, chunk->result.get());
    phases_.end(Phase::unpack);
    chunk.reset();
  }

 private:
  struct Chunk {
    explicit Chunk(Group& group) : scatter(group), gather(group) {}
    std::size_t first = 0;
    std::size_t count = 0;
    StagingBuffer packed;
    StagingBuffer arrived;
    StagingBuffer result;
    RequestBatch scatter;
    RequestBatch gather;
  };
  [[nodiscard]] bool wanted_by(std::size_t member) const { return !root_ || *root_ == member; }
  [[nodiscard]] BufferSlice slice(std::size_t member, const Chunk& chunk) const {
    const auto [first, last] = slice_of(member, group_.size(), chunk.count, size_);
    return {chunk.packed, first * size_, (last - first) * size_};
  }

  NetworkCommunicator& comm_;
  Group& group_;
  const FusedBuffer& fused_;
  tnt_op_t op_;
  std::optional<std::size_t> root_;
  Phases& phases_;
  std::size_t size_;
  bool takes_callers_;
  std::size_t per_chunk_ = 0;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

AllReduceAlgorithm NetworkCommunicator::all_reduce_algorithm(const FusedBuffer& fused, tnt_op_t op) const {
  const std::size_t bytes = fused.count() * dtype_size(fused.dtype());
  const bool small = CollectiveHandshake::gathers(group_.size(), bytes);
  AllReduceAlgorithm chosen = choose_all_reduce(group_.size(), group_.one_node, bytes, doubling_);
  if (forced_.all_reduce && (*forced_.all_reduce != AllReduceAlgorithm::gather || small)) chosen = *forced_.all_reduce;
  const std::size_t sums_bytes = fused.count() * std::max(dtype_size(fused.dtype()), sizeof(float));
  if (chosen == AllReduceAlgorithm::doubling && sums_bytes > CollectiveHandshake::max_gathered) {
    chosen = AllReduceAlgorithm::halving;
  }
  const bool adds_at_once = chosen == AllReduceAlgorithm::gather || chosen == AllReduceAlgorithm::direct;
  const bool can_add_in_parts = reduction_groups_.empty() && PartialSums::can(fused.dtype(), op);
  if (group_.size() > 1 && (adds_at_once || can_add_in_parts)) return chosen;
  return small ? AllReduceAlgorithm::gather : AllReduceAlgorithm::direct;
}

void NetworkCommunicator::reduce_tensors(const Collective& call, const CallContext& context) {
  const ReducedTensors tensors(call, rank());
  const FusedBuffer& fused = tensors.fused();
  if (takes_native(call, fused.count() * dtype_size(fused.dtype()))) return all_reduce_natively(fused, call, context);
  const std::optional<std::size_t> root =
      call.kind == Call::reduce ? std::optional(static_cast<std::size_t>(call.root)) : std::nullopt;
  const AllReduceAlgorithm algorithm = all_reduce_algorithm(fused, call.op);
  const bool wanted = !root || *root == group_.self;
  if (algorithm == AllReduceAlgorithm::gather) return reduce_gathered(call, fused, wanted, context);
  if (algorithm == AllReduceAlgorithm::direct) return reduce_directly(call, fused, root, context);
  Phases phases(context);
  const bool doubles = algorithm == AllReduceAlgorithm::doubling;
  doubles && !root ? handshake_.listen(call, context) : handshake_.begin(call, context);
  const auto finish = [&] { handshake_.finish(); };
  if (doubles) {
    DoublingAllReduce({group_, handshake_, staging_}, fused, call.op, root, phases).run(finish);
  } else {
    HalvingAllReduce({group_, handshake_, staging_}, fused, call.op, root, phases).run(finish);
  }
  handshake_.end();
}

// The handshake ends when the first slices are on their way. A rank whose neighbour makes another call sends no sum then, and
// no rank's result is complete without it.
void NetworkCommunicator::reduce_directly(const Call& call, const FusedBuffer& fused, std::optional<std::size_t> root,
                                          const CallContext& context) {
  Phases phases(context);
  handshake_.begin(call, context);
  AllReduce stages(*this, fused, call.op, root, phases);
  run_pipeline(stages, stages.chunks(), [&] { handshake_.finish(); });
  handshake_.end();
}

// Every rank gets all data with the handshake. wanted: by this rank.
void NetworkCommunicator::reduce_gathered(const Call& call, const FusedBuffer& fused, bool wanted, const CallContext& context) {
  Phases phases(context);
  const std::size_t bytes = fused.count() * dtype_size(fused.dtype());
  handshake_.gather(call, context, bytes, [&](std::byte* to) {
    fused.pack(0, fused.count(), to);
    phases.end(Phase::pack);
  });
  phases.end(Phase::wait);
  if (!wanted) return handshake_.end();
  void* out = fused.out_in_place(0, fused.count());
  const StagingBuffer result = out != nullptr ? callers_memory(out) : staging_.acquire(bytes);
  reduce_sources(
      result.get(), [&](std::size_t member) { return handshake_.gathered(member); }, fused.count(), fused.dtype(), call.op);
  phases.end(Phase::reduce);
  if (out == nullptr) fused.unpack(0, fused.count(), result.get());
  phases.end(Phase::unpack);
  handshake_.end();
}

void NetworkCommunicator::reduce_scatter(const Collective& call, const CallContext& context) {
  const Blocks blocks = blocks_of(call, group_.size());
  const std::size_t size = dtype_size(call.dtype);
  if (takes_native(call, blocks.total() * size)) {
    const std::size_t bytes = blocks.size(group_.self) * size;
    const bool in_place = call.out == static_cast<const std::byte*>(call.in) + group_.self * bytes;  // MPI's is another one
    const StagingBuffer result = in_place ? staging_.acquire(bytes) : callers_memory(call.out);
    run_natively(call, context,
                 [&] { return native_->reduce_scatter(call.in, result.get(), call.count, call.dtype, call.op, nullptr); });
    if (in_place) std::memcpy(call.out, result.get(), bytes);
    return;
  }
  const TensorView view{.in = call.in, .count = blocks.total()};
  reduce_blocks(call, blocks, FusedBuffer({&view, 1}, call.dtype), call.out, context);
}

// The tensors of each owner are a block. Small data goes to all ranks with the handshake.
void NetworkCommunicator::reduce_to_owners(const Collective& call, const CallContext& context) {
  const ReducedTensors tensors(call, rank());
  const FusedBuffer& fused = tensors.fused();
  const std::size_t size = dtype_size(fused.dtype());
  if (takes_native(call, fused.count() * size) || CollectiveHandshake::gathers(group_.size(), fused.count() * size)) {
    return reduce_tensors(call, context);
  }
  std::vector<std::size_t> counts(group_.size());
  for (std::size_t i = 0; i < call.owners.size(); ++i) {
    counts[static_cast<std::size_t>(call.owners[i])] += fused.views()[i].count;
  }
  const Blocks blocks(counts);
  const std::size_t begin = blocks.begin(group_.self);
  const std::size_t own = counts[group_.self];
  void* out = fused.out_in_place(begin, own);
  const StagingBuffer result = out != nullptr ? callers_memory(out) : staging_.acquire(own * size);
  reduce_blocks(uneven_call(Call::reduce_scatter_v, counts, fused.dtype(), call.op), blocks, fused, result.get(), context);
  if (out == nullptr) fused.unpack(begin, own, result.get());
}

ReduceScatterAlgorithm NetworkCommunicator::reduce_scatter_algorithm(const Call& call, std::size_t bytes) const {
  if (!reduction_groups_.empty() || !PartialSums::can(call.dtype, call.op)) return ReduceScatterAlgorithm::direct;
  return forced_.reduce_scatter.value_or(choose_reduce_scatter(group_.size(), group_.nodes, bytes));
}

// The handshake ends before the first data is sent: a rank whose neighbour makes another call sends none, and no rank's result
// is complete without it.
void NetworkCommunicator::reduce_blocks(const Call& call, const Blocks& counts, const FusedBuffer& fused, void* out,
                                        const CallContext& context) {
  Phases phases(context);
  handshake_.begin(call, context);
  const std::size_t size = dtype_size(call.dtype);
  const std::size_t bytes = counts.total() * size;
  if (group_.size() > 1 && reduce_scatter_algorithm(call, bytes) == ReduceScatterAlgorithm::halving) {
    HalvingReduceScatter({group_, handshake_, staging_}, fused, out, counts, call.op, phases).run([&] { handshake_.finish(); });
  } else {
    const void* in = fused.in_place(0, fused.count());
    const StagingBuffer packed = in != nullptr ? callers_memory(in) : staging_.acquire(bytes);
    if (in == nullptr) fused.pack(0, fused.count(), packed.get());
    phases.end(Phase::pack);
    const Blocks own(group_.size(), counts.size(group_.self) * size);
    BlockExchange blocks({group_, handshake_, staging_}, packed.get(), counts.times(size), own,
                         slice_bytes(bytes, group_.size()));
    handshake_.finish();
    blocks.run([&](const BlockExchange::Chunk& chunk) {
      const auto source = [&](std::size_t member) { return chunk.from(member); };
      if (chunk.room > 0) reduce_sources(at(out, chunk.first), source, chunk.room / size, call.dtype, call.op);
    });
  }
  handshake_.end();
}

}  // namespace tnt
