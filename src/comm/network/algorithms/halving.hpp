// all_reduce and reduce among many ranks: recursive halving, then recursive doubling, or messages to the root. Thakur,
// Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.5, with neighbours
// first: the order of summation is the tree.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "comm/network/algorithms/tree_all_reduce.hpp"

namespace tnt {

// A chunk of the data passes through stages, each of which waits for the messages of the one before and sends its own. While a
// chunk is in one stage, the next chunk is in the stage before, so several partners' links carry data at once. Each rank
// sends 2 (n-1)/n S in 2 log2 n messages for each chunk (16-bit types 3 (n-1)/n S: their partial sums are float32); the first
// ranks, n less the power of two below it, have a partner that sends all of its data and gets the result. A single tensor of
// the wire type is sent from the caller's memory and received there, if the network allows. All chunks in flight together then
// need memory for one chunk, whatever the number of ranks; otherwise for one more each, of 1 MiB up to 64 ranks, and for 4 MiB
// in all beyond.
class HalvingAllReduce : TreeAllReduce {
 public:
  HalvingAllReduce(const Messaging& by, const FusedBuffer& fused, tnt_op_t op, std::optional<std::size_t> root, Phases& phases);

  // root: the member that gets the result; none: all. first_begun: called when the first half is on its way, or before the
  // first wait. A rank whose neighbour makes another call sends no sum then, and no rank's result is complete without it.
  template <typename FirstBegun>
  void run(FirstBegun&& first_begun) {
    const std::size_t begun_at = places_.extra ? 0 : 1;
    for (std::size_t tick = 0; tick < chunks_ + stages() - 1; ++tick) {
      if (tick < chunks_) {
        start(tick);
      }
      for (std::size_t stage = 1; stage < stages() && stage <= tick; ++stage) {
        if (tick - stage < chunks_) advance(tick - stage, stage);
      }
      if (tick == begun_at) first_begun();
    }
  }

 private:
  using Range = std::pair<std::size_t, std::size_t>;  // of elements of a chunk
  struct Chunk {
    explicit Chunk(Group& group) : batch(group), sent(group) {}
    std::size_t first = 0;
    std::size_t count = 0;
    StagingBuffer source;   // of this rank's partial sums: its input until the first addition
    StagingBuffer data;     // where sums are written
    StagingBuffer arrived;  // from the partner: as large as this level needs, so a quarter at the next but one
    StagingBuffer result;
    std::vector<Range> ranges;  // of this rank's partial sums: all, then a half, a quarter, ...
    RequestBatch batch;         // what arrives for the next stage
    RequestBatch sent;          // from source and data, in which later stages write other parts only
  };

  [[nodiscard]] std::size_t stages() const { return 2 * places_.levels + 3; }
  void start(std::size_t index);
  void advance(std::size_t index, std::size_t stage);
  void add_extra(Chunk& chunk);
  void send_half(Chunk& chunk, std::size_t level);
  void add_half(Chunk& chunk, std::size_t level);
  void exchange_results(Chunk& chunk, std::size_t level);
  void unpack(const Chunk& chunk);
  void receive_results(Chunk& chunk);  // of all places: by the root
  [[nodiscard]] bool is_root() const { return root_ == group_.self; }
  [[nodiscard]] std::pair<Range, Range> halves(const Range& range, bool is_upper) const;  // this rank's, the partner's
  [[nodiscard]] BufferSlice slice(const StagingBuffer& buffer, const Range& range) const {
    return {buffer, range.first * sums_.size(), (range.second - range.first) * sums_.size()};
  }
  [[nodiscard]] BufferSlice result_slice(const Chunk& chunk, const Range& range) const {
    return {chunk.result, range.first * sums_.result_size(), (range.second - range.first) * sums_.result_size()};
  }
  void advance_folded(Chunk& chunk, std::size_t stage);

  std::optional<std::size_t> root_;
  bool takes_callers_;
  std::size_t per_chunk_;
  std::size_t chunks_;
  std::deque<Chunk> in_flight_;  // of the chunks from oldest_ on
  std::size_t oldest_ = 0;
};

}  // namespace tnt
