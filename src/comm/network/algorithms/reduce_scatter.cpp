#include "comm/network/algorithms/reduce_scatter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/network/messages/chunks.hpp"

namespace tnt {
namespace {

// The sums that a rank has after each level lie together if places lie in the order of their reversed bits.
std::size_t reversed(std::size_t value, std::size_t bits) {
  std::size_t result = 0;
  for (std::size_t bit = 0; bit < bits; ++bit) result = result << 1 | (value >> bit & 1);
  return result;
}

// Of one block in each chunk: chunks are as large as those of an all_reduce, and parts of small blocks are whole.
std::size_t elements_per_chunk(const Blocks& blocks, std::size_t members, std::size_t size) {
  constexpr std::size_t smallest = std::size_t{128} * 1024;
  constexpr std::size_t largest = std::size_t{1024} * 1024;
  const std::size_t all = std::clamp(blocks.total() * size / 4, smallest, largest);
  return std::max(all / members, 16 * cache_line_bytes) / cache_line_bytes * cache_line_bytes / size;
}

}  // namespace

HalvingReduceScatter::HalvingReduceScatter(const Messaging& by, const FusedBuffer& fused, void* out, const Blocks& blocks,
                                           tnt_op_t op, Phases& phases)
    : TreeAllReduce(by, fused, op, phases),
      out_(static_cast<std::byte*>(out)),
      blocks_(blocks),
      per_chunk_(elements_per_chunk(blocks, group_.size(), sums_.size())),
      chunks_(divided_up(blocks.largest(), per_chunk_)) {
  const std::size_t places = std::size_t{1} << places_.levels;
  for (std::size_t position = 0; position < places; ++position) {
    const std::size_t place = reversed(position, places_.levels);
    first_of_.push_back(order_.size());
    const bool pair = place < places_.pairs;
    order_.push_back(pair ? 2 * place : place + places_.pairs);
    if (pair) order_.push_back(2 * place + 1);
  }
  first_of_.push_back(order_.size());
}

BufferSlice HalvingReduceScatter::slice(const StagingBuffer& buffer, const Chunk& chunk, std::size_t begin,
                                        std::size_t end) const {
  const std::size_t first = chunk.offsets[first_of_[begin]];
  return {buffer, first * sums_.size(), (chunk.offsets[first_of_[end]] - first) * sums_.size()};
}

void HalvingReduceScatter::start(std::size_t index) {
  Chunk& chunk = in_flight_.emplace_back(group_);
  chunk.first = index * per_chunk_;
  chunk.end = first_of_.size() - 1;
  chunk.offsets.push_back(0);
  for (const std::size_t member : order_) chunk.offsets.push_back(chunk.offsets.back() + part(member, chunk));
  const std::size_t bytes = chunk.offsets.back() * sums_.size();
  chunk.data = staging_.acquire(bytes);
  if (places_.extra) chunk.arrived = staging_.acquire(bytes);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::size_t elements = part(order_[i], chunk);
    if (elements == 0) continue;
    sums_.pack(blocks_.begin(order_[i]) + chunk.first, elements, chunk.data.get() + chunk.offsets[i] * sums_.size(), staging_);
  }
  const BufferSlice all{chunk.arrived, 0, bytes};
  if (places_.extra && bytes > 0) chunk.batch.receive(all, *places_.extra, scatter_tag);
  phases_.end(Phase::pack);
}

// Stages 1 to levels halve, the next sends the extra rank's block, and the last waits for that.
void HalvingReduceScatter::advance(std::size_t index, std::size_t stage) {
  Chunk& chunk = in_flight_[index - oldest_];
  const std::size_t levels = places_.levels;
  if (places_.folded) {
    advance_folded(chunk, stage);
  } else {
    wait(chunk.batch);
    if (stage == 1 && places_.extra) {
      sums_.combine(chunk.data.get(), chunk.data.get(), chunk.arrived.get(), chunk.offsets.back());
      phases_.end(Phase::reduce);
    }
    if (stage > 1 && stage <= levels + 1) add_half(chunk, stage - 2);
    if (stage > 0 && stage <= levels) send_half(chunk, stage - 1);
    if (stage == levels + 1) finish(chunk);
  }
  if (stage < levels + 2) return;
  in_flight_.pop_front();
  ++oldest_;
}

void HalvingReduceScatter::advance_folded(Chunk& chunk, std::size_t stage) {
  const std::size_t own = part(group_.self, chunk) * sums_.result_size();
  if (stage == 1) {
    const std::size_t bytes = chunk.offsets.back() * sums_.size();
    if (bytes > 0) chunk.batch.send({chunk.data, 0, bytes}, group_.self - 1, scatter_tag);
    chunk.result = staging_.acquire(own);
    if (own > 0) chunk.batch.receive({chunk.result, 0, own}, group_.self - 1, gather_tag);
  } else if (stage == places_.levels + 2) {
    wait(chunk.batch);
    if (own > 0) std::memcpy(out_ + chunk.first * sums_.result_size(), chunk.result.get(), own);
    phases_.end(Phase::unpack);
  }
}

void HalvingReduceScatter::send_half(Chunk& chunk, std::size_t level) {
  const std::size_t middle = (chunk.begin + chunk.end) / 2;
  const bool upper = places_.is_upper(level);
  const BufferSlice out = upper ? slice(chunk.data, chunk, chunk.begin, middle) : slice(chunk.data, chunk, middle, chunk.end);
  (upper ? chunk.begin : chunk.end) = middle;
  const std::size_t bytes = count(chunk) * sums_.size();
  if (bytes > 0) chunk.arrived = staging_.acquire(bytes);
  const BufferSlice in{chunk.arrived, 0, bytes};
  if (in.bytes > 0) chunk.batch.receive(in, places_.partner(level), scatter_tag);
  if (out.bytes > 0) chunk.batch.send(out, places_.partner(level), scatter_tag);
}

void HalvingReduceScatter::add_half(Chunk& chunk, std::size_t level) {
  std::byte* own = slice(chunk.data, chunk, chunk.begin, chunk.end).data();
  const std::byte* lower = own;
  const std::byte* upper = chunk.arrived.get();
  if (places_.is_upper(level)) std::swap(lower, upper);
  sums_.combine(own, lower, upper, count(chunk));
  phases_.end(Phase::reduce);
}

void HalvingReduceScatter::finish(Chunk& chunk) {
  std::byte* sums = slice(chunk.data, chunk, chunk.begin, chunk.end).data();
  const std::size_t own = part(group_.self, chunk);
  if (own > 0) write(out_ + chunk.first * sums_.result_size(), sums, own);
  const std::size_t extra = places_.extra ? part(*places_.extra, chunk) : 0;
  if (extra > 0) {
    const std::size_t bytes = extra * sums_.result_size();
    chunk.result = staging_.acquire(bytes);
    write(chunk.result.get(), sums + own * sums_.size(), extra);
    chunk.batch.send({chunk.result, 0, bytes}, *places_.extra, gather_tag);
  }
  phases_.end(Phase::unpack);
}

void HalvingReduceScatter::write(std::byte* to, std::byte* sums, std::size_t count) const {
  sums_.finish(sums_.are_results() ? sums : to, sums, count);
  if (sums_.are_results()) std::memcpy(to, sums, count * sums_.result_size());
}

}  // namespace tnt
