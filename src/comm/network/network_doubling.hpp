// all_reduce of small data among many ranks: recursive doubling, neighbours first, so that the order of summation is the tree.
#pragma once

#include <cstddef>
#include <functional>

#include "comm/network/collective_handshake.hpp"
#include "comm/network/doubling_places.hpp"
#include "comm/network/exchange.hpp"
#include "comm/network/partial_sums.hpp"
#include "comm/phases.hpp"

namespace tnt {

// log2 n messages of all data from each rank, one after another. With a number of ranks that is no power of two, two more.
class DoublingAllReduce {
 public:
  DoublingAllReduce(Group& group, const CollectiveHandshake& handshake, StagingPool& staging, const FusedBuffer& fused,
                    tnt_op_t op, Phases& phases);

  // first_begun: called after the first messages were sent.
  void run(const std::function<void()>& first_begun);

 private:
  void run_folded(const std::function<void()>& first_begun);
  void unpack(const std::byte* result);

  Group& group_;
  const CollectiveHandshake& handshake_;
  StagingPool& staging_;
  const FusedBuffer& fused_;
  Phases& phases_;
  PartialSums sums_;
  DoublingPlaces places_;
  std::size_t bytes_;
  StagingBuffer data_;
  StagingBuffer arrived_;
};

}  // namespace tnt
