// Sends a chunk of each member's block and receives the chunks of the others: the data movement of all_to_all, reduce_scatter,
// gather and scatter.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "comm/blocks.hpp"
#include "comm/network/messages/chunks.hpp"
#include "comm/network/messages/collective_handshake.hpp"
#include "comm/network/messages/exchange.hpp"
#include "common/memory.hpp"

namespace tnt {

class BlockExchange {
 public:
  // to: in's block for each member. from: the size of the block that each member has for this one. In bytes.
  // per_chunk: of a block; the same on both ranks of each pair.
  BlockExchange(const Messaging& by, const void* in, Blocks to, Blocks from, std::size_t per_chunk)
      : group_(by.group),
        handshake_(by.handshake),
        staging_(by.staging),
        in_(static_cast<const std::byte*>(in)),
        to_(std::move(to)),
        from_(std::move(from)),
        per_chunk_(per_chunk),
        largest_from_(from_.largest()),
        chunks_needed_(divided_up(std::max(to_.largest(), largest_from_), per_chunk)) {}

  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t first = 0;  // first byte in each block
    std::size_t room = 0;   // for what arrives from a member
    StagingBuffer outgoing;
    StagingBuffer arrived;
    RequestBatch batch;
    [[nodiscard]] const std::byte* from(std::size_t member) const { return arrived.get() + member * room; }
  };

  // take: gets each chunk that has arrived.
  template <typename Take>
  void run(const Take& take) {
    struct Stages {
      BlockExchange& blocks;
      const Take& take;
      void start(std::size_t index) { blocks.start(index); }
      void advance(std::size_t index) {
        auto& chunk = blocks.chunks_[index % chunks_in_flight];
        blocks.handshake_.wait(chunk->batch);
        take(*chunk);
        chunk.reset();
      }
      void finish(std::size_t /*index*/) {}
    };
    Stages stages{*this, take};
    run_pipeline(stages, chunks_needed_);
  }

  // Copies what arrives to out, block after block: a chunk when the same part of the next one was sent, so equal blocks work in
  // place.
  void run_into(void* out) {
    run([&](const Chunk& chunk) {
      for (std::size_t member = 0; member < group_.size(); ++member) {
        const std::size_t bytes = arrives(chunk, member);
        if (bytes > 0) std::memcpy(at(out, from_.begin(member) + chunk.first), chunk.from(member), bytes);
      }
    });
  }

 private:
  // The part of the chunk that comes from the member.
  [[nodiscard]] std::size_t arrives(const Chunk& chunk, std::size_t member) const {
    return from_.part(member, chunk.first, per_chunk_);
  }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    chunk.first = index * per_chunk_;
    chunk.room = largest_from_ > chunk.first ? std::min(per_chunk_, largest_from_ - chunk.first) : 0;
    chunk.arrived = staging_.acquire(chunk.room * group_.size());
    std::size_t all = 0;
    for (std::size_t member = 0; member < group_.size(); ++member) {
      if (member != group_.self) all += to_.part(member, chunk.first, per_chunk_);
    }
    chunk.outgoing = staging_.acquire(all);
    std::size_t at = 0;
    for (std::size_t i = 1; i <= group_.size(); ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      const bool other = member != group_.self;
      const std::size_t arriving = arrives(chunk, member);
      if (other && arriving > 0) chunk.batch.receive({chunk.arrived, member * chunk.room, arriving}, member, scatter_tag);
      const std::size_t leaving = to_.part(member, chunk.first, per_chunk_);
      if (leaving == 0) continue;
      const BufferSlice part{other ? chunk.outgoing : chunk.arrived, other ? at : member * chunk.room, leaving};
      std::memcpy(part.data(), in_ + to_.begin(member) + chunk.first, leaving);
      if (!other) continue;
      chunk.batch.send(part, member, scatter_tag);
      at += leaving;
    }
  }

  Group& group_;
  CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const std::byte* in_;
  Blocks to_;
  Blocks from_;
  std::size_t per_chunk_;
  std::size_t largest_from_;
  std::size_t chunks_needed_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

}  // namespace tnt
