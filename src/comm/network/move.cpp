// The collectives that move blocks between ranks of a network: all_gather, broadcast, all_to_all, gather and scatter.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "comm/error_messages.hpp"
#include "comm/network/algorithms/block_exchange.hpp"
#include "comm/network/algorithms/gather.hpp"
#include "comm/network/communicator.hpp"
#include "comm/network/messages/chunks.hpp"
#include "common/memory.hpp"

namespace tnt {

// start() sends a chunk to all members; advance() copies the received chunks out.
class NetworkCommunicator::AllGather {
 public:
  // In bytes.
  AllGather(NetworkCommunicator& comm, const void* in, void* out, const Blocks& blocks)
      : comm_(comm),
        group_(comm.group_),
        in_(in),
        out_(out),
        blocks_(blocks),
        largest_(blocks.largest()),
        per_chunk_(slice_bytes(largest_ * group_.size(), group_.size())) {}
  [[nodiscard]] std::size_t chunks() const { return divided_up(largest_, per_chunk_); }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    chunk.room = std::min(per_chunk_, largest_ - index * per_chunk_);
    chunk.arrived = comm_.staging_.acquire(chunk.room * group_.size());
    const BufferSlice own{chunk.arrived, group_.self * chunk.room, part(index, group_.self)};
    if (own.bytes > 0) std::memcpy(own.data(), at(in_, index * per_chunk_), own.bytes);
    for (std::size_t i = 1; i < group_.size(); ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      const std::size_t bytes = part(index, member);
      if (bytes > 0) chunk.batch.receive({chunk.arrived, member * chunk.room, bytes}, member, gather_tag);
      if (own.bytes > 0) chunk.batch.send(own, member, gather_tag);
    }
  }

  void advance(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    comm_.handshake_.wait(chunk->batch);
    for (std::size_t member = 0; member < group_.size(); ++member) {
      const std::size_t bytes = part(index, member);
      if (bytes == 0) continue;
      std::memcpy(at(out_, blocks_.begin(member) + index * per_chunk_), chunk->arrived.get() + member * chunk->room, bytes);
    }
    chunk.reset();
  }

  void finish(std::size_t /*index*/) {}

 private:
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t room = 0;  // for a member's part
    StagingBuffer arrived;
    RequestBatch batch;
  };
  [[nodiscard]] std::size_t part(std::size_t index, std::size_t member) const {
    return blocks_.part(member, index * per_chunk_, per_chunk_);
  }

  NetworkCommunicator& comm_;
  Group& group_;
  const void* in_;
  void* out_;
  const Blocks& blocks_;
  std::size_t largest_;
  std::size_t per_chunk_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

void NetworkCommunicator::all_gather(const Collective& call, const CallContext& context) {
  const void* const in = call.in;
  void* const out = call.out;
  const Blocks bytes = blocks_of(call, group_.size(), dtype_size(call.dtype));
  if (takes_native(call, bytes.size(0))) {
    return run_natively(call, context, [&] { return native_->all_gather(in, out, bytes.size(0), nullptr); });
  }
  const std::size_t largest = bytes.largest();
  if (forced_.all_gather || !CollectiveHandshake::gathers(group_.size(), largest)) {
    const AllGatherAlgorithm chosen = choose_all_gather(group_.size(), group_.nodes, largest);
    const AllGatherAlgorithm algorithm = forced_.all_gather.value_or(chosen);
    const auto finish = [&] { handshake_.finish(); };
    handshake_.begin(call, context);
    if (algorithm == AllGatherAlgorithm::bruck) {
      BruckAllGather({group_, handshake_, staging_}, in, out, bytes).run(finish);
    } else if (algorithm == AllGatherAlgorithm::ring) {
      RingAllGather({group_, handshake_, staging_}, in, out, bytes).run(finish);
    } else {  // as the others, no data is sent before the handshake has ended
      AllGather stages(*this, in, out, bytes);
      finish();
      run_pipeline(stages, stages.chunks());
    }
    return handshake_.end();
  }
  const std::size_t own = bytes.size(group_.self);
  handshake_.gather(call, context, largest, [&](std::byte* to) {
    if (own > 0) std::memcpy(to, in, own);
  });
  for (std::size_t member = 0; member < group_.size(); ++member) {
    if (bytes.size(member) == 0) continue;
    std::memcpy(at(out, bytes.begin(member)), handshake_.gathered(member), bytes.size(member));
  }
  handshake_.end();
}

// A binary tree over the members, with the root at its top: chunks move down it one after another. start() sends a chunk of the
// root, or receives one. advance() sends it on and copies it out. No rank sends more than twice the data, in two messages for
// each chunk; the last rank has a chunk after log2 n steps.
class NetworkCommunicator::Broadcast {
 public:
  Broadcast(NetworkCommunicator& comm, const void* in, void* out, std::size_t bytes, std::size_t root)
      : comm_(comm),
        group_(comm.group_),
        in_(in),
        out_(out),
        bytes_(bytes),
        root_(root),
        place_((group_.self + group_.size() - root) % group_.size()),
        per_chunk_(slice_bytes(bytes, static_cast<std::size_t>(std::bit_width(group_.size())))) {}
  [[nodiscard]] std::size_t chunks() const { return divided_up(bytes_, per_chunk_); }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    const std::size_t first = index * per_chunk_;
    chunk.data.bytes = std::min(per_chunk_, bytes_ - first);
    chunk.data.buffer = comm_.staging_.acquire(chunk.data.bytes);
    if (place_ > 0) return chunk.batch.receive(chunk.data, member((place_ - 1) / 2), scatter_tag);
    std::memcpy(chunk.data.data(), at(in_, first), chunk.data.bytes);
    send_on(chunk);
    if (out_ != in_) std::memcpy(at(out_, first), chunk.data.data(), chunk.data.bytes);
  }

  void advance(std::size_t index) {
    if (place_ == 0) return;
    Chunk& chunk = *chunks_[index % chunks_in_flight];
    comm_.handshake_.wait(chunk.batch);
    send_on(chunk);
    std::memcpy(at(out_, index * per_chunk_), chunk.data.data(), chunk.data.bytes);
  }

  void finish(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    comm_.handshake_.wait(chunk->batch);
    chunk.reset();
  }

 private:
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    BufferSlice data;
    RequestBatch batch;
  };
  [[nodiscard]] std::size_t member(std::size_t place) const { return (place + root_) % group_.size(); }
  void send_on(Chunk& chunk) {
    for (std::size_t child = 2 * place_ + 1; child <= std::min(2 * place_ + 2, group_.size() - 1); ++child) {
      chunk.batch.send(chunk.data, member(child), scatter_tag);
    }
  }

  NetworkCommunicator& comm_;
  Group& group_;
  const void* in_;
  void* out_;
  std::size_t bytes_;
  std::size_t root_;
  std::size_t place_;  // in the tree: children of p are 2p + 1 and 2p + 2
  std::size_t per_chunk_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

void NetworkCommunicator::broadcast(const Collective& call, const CallContext& context) {
  const void* const in = call.in;
  void* const out = call.out;
  const std::size_t bytes = call.count * dtype_size(call.dtype);
  constexpr std::size_t max_gathered_bytes = 1024;  // more costs the members' links more than a second round of messages
  if (bytes <= max_gathered_bytes && CollectiveHandshake::gathers(group_.size(), bytes)) {
    handshake_.gather(call, context, bytes, [&](std::byte* to) {
      if (rank() == call.root) std::memcpy(to, in, bytes);
    });
    if (bytes > 0) std::memcpy(out, handshake_.gathered(static_cast<std::size_t>(call.root)), bytes);
    return handshake_.end();
  }
  Broadcast stages(*this, in, out, bytes, static_cast<std::size_t>(call.root));
  handshake_.begin(call, context);
  handshake_.finish();
  run_pipeline(stages, stages.chunks());
  handshake_.end();
}

// One block to and from each member; those of gather and scatter are empty but for the root.
void NetworkCommunicator::exchange_blocks(const Collective& call, const CallContext& context) {
  const std::size_t bytes = call.count * dtype_size(call.dtype);
  const Blocks all(group_.size(), bytes);
  const auto root = static_cast<std::size_t>(call.root);
  const Blocks with_root = call.kind == Call::all_to_all
                               ? all
                               : Blocks::only(root, group_.size(), bytes);  // what each has for the root, or it for each
  const Blocks from_root(group_.size(), group_.self == root ? bytes : 0);
  const Blocks& to = call.kind == Call::scatter ? from_root : with_root;
  const Blocks& from = call.kind == Call::gather ? from_root : with_root;
  handshake_.begin(call, context);
  handshake_.finish();
  BlockExchange({group_, handshake_, staging_}, call.in, to, from, slice_bytes(all.total(), group_.size())).run_into(call.out);
  handshake_.end();
}

// all_to_all_v. Each pair of ranks first compares what it sends with what it expects: a network may cut or mix messages of
// other lengths. A pair then cuts its blocks into chunks of a size that depends on no other ranks' counts.
void NetworkCommunicator::exchange_counts(const Collective& call, const CallContext& context) {
  handshake_.begin(call, context);
  std::vector<std::size_t> sent(group_.size());
  const Blocks one(group_.size(), sizeof(std::size_t));
  const Messaging by{group_, handshake_, staging_};
  handshake_.finish();
  BlockExchange(by, call.counts.data(), one, one, cache_line_bytes).run_into(sent.data());
  for (std::size_t member = 0; member < group_.size(); ++member) {
    if (sent[member] == call.recv_counts[member]) continue;
    abort_and_throw(*group_.world, TNT_MISMATCH,
                    block_mismatch_message(group_.members[member], sent[member], group_.members[group_.self],
                                           call.recv_counts[member], call, handshake_.calls()));
  }
  const std::size_t size = dtype_size(call.dtype);
  const Blocks to(call.counts, size);
  const Blocks from(call.recv_counts, size);
  const std::size_t per_chunk = slice_bytes(std::numeric_limits<std::size_t>::max(), group_.size());
  BlockExchange(by, call.in, to, from, per_chunk).run_into(call.out);
  handshake_.end();
}

}  // namespace tnt
