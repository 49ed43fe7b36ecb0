// all_gather, broadcast and all_to_all over a network.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "comm/network/block_exchange.hpp"
#include "comm/network/chunks.hpp"
#include "comm/network/network_communicator.hpp"
#include "comm/network/pipeline.hpp"

namespace tnt {
namespace {

const std::byte* at(const void* pointer, std::size_t bytes) { return static_cast<const std::byte*>(pointer) + bytes; }
std::byte* at(void* pointer, std::size_t bytes) { return static_cast<std::byte*>(pointer) + bytes; }

}  // namespace

// start() sends a chunk to all members; advance() copies the received chunks out.
class NetworkCommunicator::AllGather {
 public:
  AllGather(NetworkCommunicator& comm, const void* in, void* out, std::size_t bytes)
      : comm_(comm),
        group_(comm.group_),
        in_(in),
        out_(out),
        bytes_(bytes),
        per_chunk_(slice_bytes(bytes * group_.size(), group_.size())) {}
  [[nodiscard]] std::size_t chunks() const { return chunk_count(bytes_, per_chunk_); }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    chunk.bytes = std::min(per_chunk_, bytes_ - index * per_chunk_);
    chunk.arrived = comm_.staging_.acquire(chunk.bytes * group_.size());
    const BufferSlice own{chunk.arrived, group_.self * chunk.bytes, chunk.bytes};
    std::memcpy(own.data(), at(in_, index * per_chunk_), chunk.bytes);
    for (std::size_t i = 1; i < group_.size(); ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      chunk.batch.receive({chunk.arrived, member * chunk.bytes, chunk.bytes}, member, gather_tag);
      chunk.batch.send(own, member, gather_tag);
    }
  }

  void advance(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    comm_.handshake_.wait(chunk->batch);
    for (std::size_t member = 0; member < group_.size(); ++member) {
      std::memcpy(at(out_, member * bytes_ + index * per_chunk_), chunk->arrived.get() + member * chunk->bytes, chunk->bytes);
    }
    chunk.reset();
  }

  void finish(std::size_t /*index*/) {}

 private:
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t bytes = 0;
    StagingBuffer arrived;
    RequestBatch batch;
  };

  NetworkCommunicator& comm_;
  Group& group_;
  const void* in_;
  void* out_;
  std::size_t bytes_;
  std::size_t per_chunk_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

void NetworkCommunicator::all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                     const CallContext& context) {
  const std::size_t bytes = count * dtype_size(dtype);
  const Call call{.kind = Call::all_gather, .dtype = dtype, .count = count};
  if (takes_native(call, bytes)) {
    return run_natively(call, context, [&] { return native_->all_gather(in, out, bytes, nullptr); });
  }
  if (!CollectiveHandshake::gathers(group_.size(), bytes)) {
    AllGather stages(*this, in, out, bytes);
    handshake_.begin(call, context);
    run_pipeline(stages, stages.chunks(), [&] { handshake_.finish(); });
    return handshake_.end();
  }
  handshake_.gather(call, context, bytes, [&](std::byte* to) { std::memcpy(to, in, bytes); });
  for (std::size_t member = 0; member < group_.size() && bytes > 0; ++member) {
    std::memcpy(at(out, member * bytes), handshake_.gathered(member), bytes);
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
  [[nodiscard]] std::size_t chunks() const { return chunk_count(bytes_, per_chunk_); }

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

void NetworkCommunicator::broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                                    const CallContext& context) {
  const std::size_t bytes = count * dtype_size(dtype);
  const Call call{.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count};
  constexpr std::size_t max_gathered_bytes = 1024;  // more costs the members' links more than a second round of messages
  if (bytes <= max_gathered_bytes && CollectiveHandshake::gathers(group_.size(), bytes)) {
    handshake_.gather(call, context, bytes, [&](std::byte* to) {
      if (rank() == root) std::memcpy(to, in, bytes);
    });
    if (bytes > 0) std::memcpy(out, handshake_.gathered(static_cast<std::size_t>(root)), bytes);
    return handshake_.end();
  }
  Broadcast stages(*this, in, out, bytes, static_cast<std::size_t>(root));
  handshake_.begin(call, context);
  run_pipeline(stages, stages.chunks(), [&] { handshake_.finish(); });
  handshake_.end();
}

// advance() copies a chunk out after start() has sent the same part of the next chunk, so the call works in place.
class NetworkCommunicator::AllToAll {
 public:
  AllToAll(NetworkCommunicator& comm, const void* in, void* out, std::size_t bytes)
      : comm_(comm), blocks_(comm.group_, comm.staging_, in, bytes), out_(out), bytes_(bytes) {}
  [[nodiscard]] std::size_t chunks() const { return blocks_.chunks(); }

  void start(std::size_t index) { blocks_.start(index); }

  void advance(std::size_t index) {
    BlockExchange::Chunk& chunk = blocks_.chunk(index);
    comm_.handshake_.wait(chunk.batch);
    for (std::size_t member = 0; member < comm_.group_.size(); ++member) {
      std::memcpy(at(out_, member * bytes_ + chunk.first), chunk.from(member), chunk.bytes);
    }
    blocks_.finish(index);
  }

  void finish(std::size_t /*index*/) {}

 private:
  NetworkCommunicator& comm_;
  BlockExchange blocks_;
  void* out_;
  std::size_t bytes_;
};

void NetworkCommunicator::all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype,
                                     const CallContext& context) {
  const std::size_t bytes = count * dtype_size(dtype);
  const Call call{.kind = Call::all_to_all, .dtype = dtype, .count = count};
  AllToAll stages(*this, in, out, bytes);
  handshake_.begin(call, context);
  run_pipeline(stages, stages.chunks(), [&] { handshake_.finish(); });
  handshake_.end();
}

}  // namespace tnt
