// Small data among many ranks: all_reduce by recursive doubling, and reduce by a tree; neighbours first, so that the order of
// summation is the tree.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "comm/network/algorithms/tree_all_reduce.hpp"

namespace tnt {

// log2 n messages of all data from each rank, one after another. With a number of ranks that is no power of two, two more. For
// a root alone each rank sends one message, and member 0 the result. Messages begin with their call, so a rank that gets all
// data knows that all ranks made the same call.
class DoublingAllReduce : TreeAllReduce {
 public:
  // root: the member that gets the result; none: all.
  DoublingAllReduce(const Messaging& by, const FusedBuffer& fused, tnt_op_t op, std::optional<std::size_t> root, Phases& phases)
      : TreeAllReduce(by, fused, op, phases), root_(root) {}

  // arrived: called when this rank's part is done, which for a root alone is before all ranks have made the call.
  void run(const std::function<void()>& arrived);

 private:
  void add_up();                                        // exchanges partial sums until this rank has all, or has sent its own
  void send_results();                                  // or receives the result
  void receive(std::size_t bytes, std::size_t member);  // of data
  void send(const StagingBuffer& message, std::size_t bytes, std::size_t member);
  void complete();  // the messages since the last one
  void add(std::size_t level);
  [[nodiscard]] std::byte* sums() const { return data_.get() + CollectiveHandshake::header_bytes; }
  [[nodiscard]] bool has_sum() const { return !places_.folded && (!root_ || places_.place == 0); }

  std::optional<std::size_t> root_;
  std::size_t bytes_ = fused_.count() * sums_.size();
  std::size_t result_bytes_ = fused_.count() * sums_.result_size();
  StagingBuffer data_;  // a message: the header, then this rank's partial sums
  StagingBuffer arrived_;
  StagingBuffer arrived_rest_;
  std::optional<std::size_t> sender_;  // of what arrives
  std::size_t arriving_head_ = 0;      // bytes of its message, and of the rest, which may be a message of its own
  std::size_t arriving_rest_ = 0;
  RequestBatch heads_{group_};
  RequestBatch rests_{group_};
};

}  // namespace tnt
