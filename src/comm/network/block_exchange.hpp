// Sends a chunk of each member's block and receives the chunks of the others: the data movement of all_to_all and
// reduce_scatter.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "comm/network/chunks.hpp"
#include "comm/network/exchange.hpp"
#include "comm/network/pipeline.hpp"

namespace tnt {

class BlockExchange {
 public:
  // in: a block of this many bytes for each member.
  BlockExchange(Group& group, StagingPool& staging, const void* in, std::size_t bytes)
      : group_(group), staging_(staging), in_(in), bytes_(bytes), per_chunk_(slice_bytes(bytes * group.size(), group.size())) {}

  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t first = 0;  // first byte in the block
    std::size_t bytes = 0;  // of the chunk
    StagingBuffer outgoing;
    StagingBuffer arrived;  // so many bytes from each member
    RequestBatch batch;
    [[nodiscard]] const std::byte* from(std::size_t member) const { return arrived.get() + member * bytes; }
  };

  [[nodiscard]] std::size_t chunks() const { return chunk_count(bytes_, per_chunk_); }

  void start(std::size_t index) {
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace(group_);
    chunk.first = index * per_chunk_;
    chunk.bytes = std::min(per_chunk_, bytes_ - chunk.first);
    chunk.outgoing = staging_.acquire(chunk.bytes * group_.size());
    chunk.arrived = staging_.acquire(chunk.bytes * group_.size());
    for (std::size_t i = 1; i <= group_.size(); ++i) {
      const std::size_t member = (group_.self + i) % group_.size();
      const bool other = member != group_.self;
      if (other) chunk.batch.receive({chunk.arrived, member * chunk.bytes, chunk.bytes}, member, scatter_tag);
      const BufferSlice part{other ? chunk.outgoing : chunk.arrived, member * chunk.bytes, chunk.bytes};
      std::memcpy(part.data(), static_cast<const std::byte*>(in_) + member * bytes_ + chunk.first, chunk.bytes);
      if (other) chunk.batch.send(part, member, scatter_tag);
    }
  }

  [[nodiscard]] Chunk& chunk(std::size_t index) { return *chunks_[index % chunks_in_flight]; }
  void finish(std::size_t index) { chunks_[index % chunks_in_flight].reset(); }

 private:
  Group& group_;
  StagingPool& staging_;
  const void* in_;
  std::size_t bytes_;
  std::size_t per_chunk_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

}  // namespace tnt
