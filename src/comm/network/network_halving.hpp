// all_reduce among many ranks: recursive halving, then recursive doubling. Thakur, Rabenseifner, Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005, section 4.5, with neighbours first: the order of summation is the tree.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "comm/network/collective_handshake.hpp"
#include "comm/network/exchange.hpp"
#include "comm/phases.hpp"

namespace tnt {

// A chunk of the data passes through stages, each of which waits for the messages of the one before and sends its own. While a
// chunk is in one stage, the next chunk is in the stage before, so several partners' links carry data at once. Each rank
// sends 2 (n-1)/n S in 2 log2 n messages for each chunk; the first ranks, n less the power of two below it, have a partner that
// sends all of its data and gets the result.
class HalvingAllReduce {
 public:
  // From so many ranks on, direct messages to all are more than the rounds of this algorithm.
  static constexpr std::size_t min_members = 8;
  // 16-bit types would be rounded at every addition, and means need the number of ranks.
  [[nodiscard]] static bool can(tnt_dtype_t dtype, tnt_op_t op) { return dtype_size(dtype) != 2 && op != TNT_AVG; }

  HalvingAllReduce(Group& group, const CollectiveHandshake& handshake, StagingPool& staging, const FusedBuffer& fused,
                   tnt_op_t op, Phases& phases);

  // first_begun: called after the first messages were sent.
  template <typename FirstBegun>
  void run(FirstBegun&& first_begun) {
    const std::size_t stages = 2 * levels_ + 3;
    for (std::size_t tick = 0; tick < chunks_ + stages - 1; ++tick) {
      if (tick < chunks_) {
        start(tick);
      }
      if (tick == 0) first_begun();
      for (std::size_t stage = 1; stage < stages && stage <= tick; ++stage) {
        if (tick - stage < chunks_) advance(tick - stage, stage);
      }
    }
  }

 private:
  using Range = std::pair<std::size_t, std::size_t>;  // of elements of a chunk
  struct Chunk {
    explicit Chunk(Group& group) : batch(group) {}
    std::size_t first = 0;
    std::size_t count = 0;
    StagingBuffer data;
    StagingBuffer arrived;
    std::vector<Range> ranges;  // of this rank's partial sums: all, then a half, a quarter, ...
    RequestBatch batch;
  };

  void start(std::size_t index);
  void advance(std::size_t index, std::size_t stage);
  void wait(Chunk& chunk);
  void send_half(Chunk& chunk, std::size_t level);
  void add_half(Chunk& chunk, std::size_t level);
  void exchange_results(Chunk& chunk, std::size_t level);
  void unpack(const Chunk& chunk);
  [[nodiscard]] std::pair<Range, Range> halves(const Range& range, std::size_t level) const;  // this rank's, the partner's
  [[nodiscard]] std::size_t partner(std::size_t level) const;
  [[nodiscard]] bool is_upper(std::size_t level) const { return (place_ >> level & 1) != 0; }
  [[nodiscard]] BufferSlice slice(const StagingBuffer& buffer, const Range& range) const {
    return {buffer, range.first * size_, (range.second - range.first) * size_};
  }

  Group& group_;
  const CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const FusedBuffer& fused_;
  tnt_op_t op_;
  Phases& phases_;
  std::size_t size_;
  std::size_t levels_;
  std::size_t pairs_;                 // ranks beyond the power of two
  std::size_t place_ = 0;             // among the ranks that halve
  bool folded_ = false;               // whether the rank before takes this one's data and sends the result
  std::optional<std::size_t> extra_;  // the rank for which this one does so
  std::size_t per_chunk_;
  std::size_t chunks_;
  std::deque<Chunk> in_flight_;  // of the chunks from oldest_ on
  std::size_t oldest_ = 0;
};

}  // namespace tnt
