// all_reduce of small data among many ranks: recursive doubling, neighbours first, so that the order of summation is the tree.
#pragma once

#include <cstddef>
#include <functional>

#include "comm/network/tree_all_reduce.hpp"

namespace tnt {

// log2 n messages of all data from each rank, one after another. With a number of ranks that is no power of two, two more.
class DoublingAllReduce : TreeAllReduce {
 public:
  using TreeAllReduce::TreeAllReduce;

  // first_begun: called after the first messages were sent.
  void run(const std::function<void()>& first_begun);

 private:
  void run_folded(const std::function<void()>& first_begun);
  void unpack(const std::byte* result);

  std::size_t bytes_ = fused_.count() * sums_.size();
  StagingBuffer data_;
  StagingBuffer arrived_;
};

}  // namespace tnt
