#include "comm/network/network_halving.hpp"

#include <algorithm>
#include <bit>

#include "comm/network/chunks.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

// Large enough for the full rate of a network in the first half, small enough that a few chunks overlap.
std::size_t chunk_bytes(std::size_t bytes) {
  constexpr std::size_t smallest = std::size_t{128} * 1024;
  constexpr std::size_t largest = std::size_t{1024} * 1024;
  return std::clamp(bytes / 4, smallest, largest) / cache_line_bytes * cache_line_bytes;
}

}  // namespace

HalvingAllReduce::HalvingAllReduce(Group& group, const CollectiveHandshake& handshake, StagingPool& staging,
                                   const FusedBuffer& fused, tnt_op_t op, Phases& phases)
    : group_(group),
      handshake_(handshake),
      staging_(staging),
      fused_(fused),
      op_(op),
      phases_(phases),
      size_(dtype_size(fused.dtype())),
      levels_(static_cast<std::size_t>(std::bit_width(group.size())) - 1),
      pairs_(group.size() - std::bit_floor(group.size())),
      per_chunk_(chunk_bytes(fused.count() * size_) / size_),
      chunks_(chunk_count(fused.count(), per_chunk_)) {
  if (group_.self >= 2 * pairs_) {
    place_ = group_.self - pairs_;
  } else if (group_.self % 2 == 0) {
    place_ = group_.self / 2;
    extra_ = group_.self + 1;
  } else {
    folded_ = true;
  }
}

void HalvingAllReduce::start(std::size_t index) {
  Chunk& chunk = in_flight_.emplace_back(group_);
  chunk.first = index * per_chunk_;
  chunk.count = std::min(per_chunk_, fused_.count() - chunk.first);
  chunk.data = staging_.acquire(chunk.count * size_);
  chunk.arrived = staging_.acquire(chunk.count * size_);
  const Range all{0, chunk.count};
  chunk.ranges.push_back(all);
  if (extra_) chunk.batch.receive(slice(chunk.arrived, all), *extra_, scatter_tag);
  if (folded_) chunk.batch.receive(slice(chunk.arrived, all), group_.self - 1, gather_tag);
  fused_.pack(chunk.first, chunk.count, chunk.data.get());
  phases_.end("pack");
  if (folded_) chunk.batch.send(slice(chunk.data, all), group_.self - 1, scatter_tag);
}

// Stages 1 to levels halve, the next levels gather, the last but one sends the result to the extra rank.
void HalvingAllReduce::advance(std::size_t index, std::size_t stage) {
  Chunk& chunk = in_flight_[index - oldest_];
  const bool is_last = stage == 2 * levels_ + 2;
  if (folded_ && !is_last) return;
  wait(chunk);
  if (is_last) {
    if (folded_) {
      chunk.data = chunk.arrived;
      unpack(chunk);
    }
    in_flight_.pop_front();
    ++oldest_;
  } else if (stage <= levels_) {
    if (stage > 1) add_half(chunk, stage - 2);
    if (stage == 1 && extra_) {
      const std::array<const void*, 2> both{chunk.data.get(), chunk.arrived.get()};
      reduce(chunk.data.get(), both, chunk.count, fused_.dtype(), op_);
      phases_.end("reduce");
    }
    send_half(chunk, stage - 1);
  } else if (stage <= 2 * levels_) {
    if (stage == levels_ + 1) add_half(chunk, levels_ - 1);
    exchange_results(chunk, 2 * levels_ - stage);
  } else {
    if (extra_) chunk.batch.send(slice(chunk.data, {0, chunk.count}), *extra_, gather_tag);
    unpack(chunk);
  }
}

void HalvingAllReduce::wait(Chunk& chunk) {
  handshake_.wait(chunk.batch);
  phases_.end("wait");
}

void HalvingAllReduce::unpack(const Chunk& chunk) {
  fused_.unpack(chunk.first, chunk.count, chunk.data.get());
  phases_.end("unpack");
}

void HalvingAllReduce::send_half(Chunk& chunk, std::size_t level) {
  const auto [own, others] = halves(chunk.ranges.back(), level);
  chunk.ranges.push_back(own);
  const BufferSlice in = slice(chunk.arrived, own);
  const BufferSlice out = slice(chunk.data, others);
  if (in.bytes > 0) chunk.batch.receive(in, partner(level), scatter_tag);
  if (out.bytes > 0) chunk.batch.send(out, partner(level), scatter_tag);
}

// The lower rank's sum is the left operand.
void HalvingAllReduce::add_half(Chunk& chunk, std::size_t level) {
  const BufferSlice own = slice(chunk.data, chunk.ranges.back());
  const BufferSlice other = slice(chunk.arrived, chunk.ranges.back());
  std::array<const void*, 2> both{own.data(), other.data()};
  if (is_upper(level)) std::swap(both[0], both[1]);
  if (own.bytes > 0) reduce(own.data(), both, own.bytes / size_, fused_.dtype(), op_);
  phases_.end("reduce");
}

void HalvingAllReduce::exchange_results(Chunk& chunk, std::size_t level) {
  const BufferSlice own = slice(chunk.data, chunk.ranges.back());
  chunk.ranges.pop_back();
  const BufferSlice in = slice(chunk.data, halves(chunk.ranges.back(), level).second);
  if (in.bytes > 0) chunk.batch.receive(in, partner(level), gather_tag);
  if (own.bytes > 0) chunk.batch.send(own, partner(level), gather_tag);
}

std::pair<HalvingAllReduce::Range, HalvingAllReduce::Range> HalvingAllReduce::halves(const Range& range,
                                                                                     std::size_t level) const {
  const std::size_t middle = range.first + slice_of(0, 2, range.second - range.first, size_).second;
  const Range lower{range.first, middle};
  const Range upper{middle, range.second};
  return is_upper(level) ? std::pair{upper, lower} : std::pair{lower, upper};
}

std::size_t HalvingAllReduce::partner(std::size_t level) const {
  const std::size_t place = place_ ^ std::size_t{1} << level;
  return place < pairs_ ? 2 * place : place + pairs_;
}

}  // namespace tnt
