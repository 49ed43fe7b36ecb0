// reduce_scatter among many ranks: recursive halving, neighbours first, so that the order of summation is the tree.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "comm/blocks.hpp"
#include "comm/network/algorithms/tree_all_reduce.hpp"

namespace tnt {

// As the first half of HalvingAllReduce, with blocks in place of slices. Each rank sends (n-1)/n S in log2 n messages for each
// chunk (16-bit types twice that: their partial sums are float32), most of it to its neighbours. The first ranks, n less the
// power of two below it, have a partner that sends all of its data and gets its block.
class HalvingReduceScatter : TreeAllReduce {
 public:
  // fused: of all of the input. blocks: in elements.
  HalvingReduceScatter(const Messaging& by, const FusedBuffer& fused, void* out, const Blocks& blocks, tnt_op_t op,
                       Phases& phases);

  // finish_handshake: called before the first message.
  template <typename FinishHandshake>
  void run(FinishHandshake&& finish_handshake) {
    const std::size_t stages = places_.levels + 3;
    if (chunks_ == 0) finish_handshake();
    for (std::size_t tick = 0; tick < chunks_ + stages - 1 && chunks_ > 0; ++tick) {
      if (tick < chunks_) start(tick);
      if (tick == 0) finish_handshake();
      for (std::size_t stage = 1; stage < stages && stage <= tick; ++stage) {
        if (tick - stage < chunks_) advance(tick - stage, stage);
      }
    }
  }

 private:
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t first = 0;             // element of each block
    StagingBuffer data;                // this rank's partial sums: parts of the blocks in the order of order_
    StagingBuffer arrived;             // from the partner: as large as this level needs
    StagingBuffer result;              // of the extra rank; of a folded rank: its own
    std::vector<std::size_t> offsets;  // of the parts, and the end of the last
    std::size_t begin = 0;             // the positions of places whose sums this rank still has
    std::size_t end = 0;
    RequestBatch batch;
  };

  void start(std::size_t index);
  void advance(std::size_t index, std::size_t stage);
  void advance_folded(Chunk& chunk, std::size_t stage);
  void send_half(Chunk& chunk, std::size_t level);
  void add_half(Chunk& chunk, std::size_t level);
  void finish(Chunk& chunk);
  void write(std::byte* to, std::byte* sums, std::size_t count) const;
  [[nodiscard]] std::size_t part(std::size_t member, const Chunk& chunk) const {
    return blocks_.part(member, chunk.first, per_chunk_);
  }
  // Of the places at positions [begin, end).
  [[nodiscard]] BufferSlice slice(const StagingBuffer& buffer, const Chunk& chunk, std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::size_t count(const Chunk& chunk) const {
    return chunk.offsets[first_of_[chunk.end]] - chunk.offsets[first_of_[chunk.begin]];
  }

  std::byte* out_;
  const Blocks& blocks_;
  std::vector<std::size_t> order_;     // members by the position of their places: places whose first bits differ are apart
  std::vector<std::size_t> first_of_;  // of each position: the first of its members in order_
  std::size_t per_chunk_;              // elements of a block
  std::size_t chunks_;
  std::deque<Chunk> in_flight_;  // of the chunks from oldest_ on
  std::size_t oldest_ = 0;
};

}  // namespace tnt
