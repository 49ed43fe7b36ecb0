#include "comm/network/algorithms/halving.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "comm/network/messages/chunks.hpp"

namespace tnt {
namespace {

// Large enough for the full rate of a network in the first half, small enough that a few chunks overlap. On one node nothing
// travels while ranks compute. Each chunk of packed data takes memory as long as it is in flight, and one is in each stage:
// among many ranks all of them together take 4 MiB.
std::size_t chunk_bytes(std::size_t bytes, bool one_node, bool packed, std::size_t stages) {
  constexpr std::size_t smallest = std::size_t{128} * 1024;
  constexpr std::size_t largest_of_all = 8 * smallest;
  constexpr std::size_t all_in_flight = 4 * largest_of_all;
  constexpr std::size_t of_64_ranks = 15;
  const std::size_t largest =
      packed && stages > of_64_ranks ? std::max(smallest, std::bit_floor(all_in_flight / stages)) : largest_of_all;
  return std::clamp(one_node ? bytes : bytes / 4, smallest, largest) / cache_line_bytes * cache_line_bytes;
}

}  // namespace

HalvingAllReduce::HalvingAllReduce(const Messaging& by, const FusedBuffer& fused, tnt_op_t op, std::optional<std::size_t> root,
                                   Phases& phases)
    : TreeAllReduce(by, fused, op, phases),
      root_(root),
      takes_callers_(sums_.are_results() && group_.world->network().takes_callers_memory()),
      per_chunk_(
          chunk_bytes(fused.count() * sums_.size(), group_.one_node, !takes_callers_ || fused.views().size() > 1, stages()) /
          sums_.size()),
      chunks_(divided_up(fused.count(), per_chunk_)) {}

void HalvingAllReduce::start(std::size_t index) {
  Chunk& chunk = in_flight_.emplace_back(group_);
  chunk.first = index * per_chunk_;
  chunk.count = std::min(per_chunk_, fused_.count() - chunk.first);
  const void* in = takes_callers_ ? fused_.in_place(chunk.first, chunk.count) : nullptr;
  void* out = takes_callers_ ? fused_.out_in_place(chunk.first, chunk.count) : nullptr;
  chunk.data = out != nullptr ? callers_memory(out) : staging_.acquire(chunk.count * sums_.size());
  chunk.source = in != nullptr ? callers_memory(in) : chunk.data;
  chunk.result = sums_.are_results() ? chunk.data : staging_.acquire(chunk.count * sums_.result_size());
  const Range all{0, chunk.count};
  chunk.ranges.push_back(all);
  if (places_.extra) {
    chunk.arrived = staging_.acquire(chunk.count * sums_.size());
    chunk.batch.receive(slice(chunk.arrived, all), *places_.extra, scatter_tag);
  }
  if (in == nullptr) sums_.pack(chunk.first, chunk.count, chunk.data.get(), staging_);
  phases_.end(Phase::pack);
}

// Stages 1 to levels halve, the next levels gather, the last but one sends the result to the extra rank. For a root alone, the
// first of those that gather sends to it.
void HalvingAllReduce::advance(std::size_t index, std::size_t stage) {
  Chunk& chunk = in_flight_[index - oldest_];
  const std::size_t levels = places_.levels;
  if (places_.folded) return advance_folded(chunk, stage);
  wait(chunk.batch);
  if (stage == levels + 1 || stage == 2 * levels + 2) wait(chunk.sent);  // results arrive where partial sums were
  if (stage == 2 * levels + 2) {
    in_flight_.pop_front();
    ++oldest_;
  } else if (stage - 1 < levels) {
    if (stage > 1) add_half(chunk, stage - 2);
    if (stage == 1 && places_.extra) add_extra(chunk);
    send_half(chunk, stage - 1);
  } else if (stage <= 2 * levels) {
    if (stage == levels + 1) {
      add_half(chunk, levels - 1);
      chunk.arrived.reset();
      const Range& own = chunk.ranges.back();
      sums_.finish(result_slice(chunk, own).data(), slice(chunk.data, own).data(), own.second - own.first);
    }
    if (!root_) return exchange_results(chunk, 2 * levels - stage);
    if (stage > levels + 1) return;
    const BufferSlice own = result_slice(chunk, chunk.ranges.back());
    if (is_root()) return receive_results(chunk);
    if (own.bytes > 0) chunk.sent.send(own, *root_, gather_tag);
  } else {
    if (!root_ && places_.extra) chunk.sent.send(result_slice(chunk, {0, chunk.count}), *places_.extra, gather_tag);
    unpack(chunk);
  }
}

void HalvingAllReduce::receive_results(Chunk& chunk) {
  for (std::size_t place = 0; place < std::size_t{1} << places_.levels; ++place) {
    Range range{0, chunk.count};
    for (std::size_t level = 0; level < places_.levels; ++level) range = halves(range, (place >> level & 1) != 0).first;
    const std::size_t member = places_.member(place);
    const BufferSlice part = result_slice(chunk, range);
    if (member != group_.self && part.bytes > 0) chunk.batch.receive(part, member, gather_tag);
  }
}

// The result may arrive where the input was, so the input must have left.
void HalvingAllReduce::advance_folded(Chunk& chunk, std::size_t stage) {
  const Range all{0, chunk.count};
  if (stage == 1) {
    chunk.sent.send(slice(chunk.source, all), group_.self - 1, scatter_tag);
  } else if (stage == 2) {
    wait(chunk.sent);
    if (!root_) chunk.batch.receive(result_slice(chunk, all), group_.self - 1, gather_tag);
    if (is_root()) receive_results(chunk);
  } else if (stage == 2 * places_.levels + 2) {
    wait(chunk.batch);
    unpack(chunk);
    in_flight_.pop_front();
    ++oldest_;
  }
}

void HalvingAllReduce::unpack(const Chunk& chunk) {
  if (!is_callers(chunk.result) && (!root_ || is_root())) fused_.unpack(chunk.first, chunk.count, chunk.result.get());
  phases_.end(Phase::unpack);
}

void HalvingAllReduce::add_extra(Chunk& chunk) {
  sums_.combine(chunk.data.get(), chunk.source.get(), chunk.arrived.get(), chunk.count);
  chunk.source = chunk.data;
  phases_.end(Phase::reduce);
}

void HalvingAllReduce::send_half(Chunk& chunk, std::size_t level) {
  const auto [own, others] = halves(chunk.ranges.back(), places_.is_upper(level));
  chunk.ranges.push_back(own);
  const std::size_t bytes = (own.second - own.first) * sums_.size();
  if (bytes > 0) chunk.arrived = staging_.acquire(bytes);
  const BufferSlice in{chunk.arrived, 0, bytes};
  const BufferSlice out = slice(chunk.source, others);
  if (in.bytes > 0) chunk.batch.receive(in, places_.partner(level), scatter_tag);
  if (out.bytes > 0) chunk.sent.send(out, places_.partner(level), scatter_tag);
}

void HalvingAllReduce::add_half(Chunk& chunk, std::size_t level) {
  const Range& range = chunk.ranges.back();
  const std::byte* lower = slice(chunk.source, range).data();
  const std::byte* upper = chunk.arrived.get();
  if (places_.is_upper(level)) std::swap(lower, upper);
  sums_.combine(slice(chunk.data, range).data(), lower, upper, range.second - range.first);
  chunk.source = chunk.data;
  phases_.end(Phase::reduce);
}

void HalvingAllReduce::exchange_results(Chunk& chunk, std::size_t level) {
  const BufferSlice own = result_slice(chunk, chunk.ranges.back());
  chunk.ranges.pop_back();
  const BufferSlice in = result_slice(chunk, halves(chunk.ranges.back(), places_.is_upper(level)).second);
  if (in.bytes > 0) chunk.batch.receive(in, places_.partner(level), gather_tag);
  if (own.bytes > 0) chunk.sent.send(own, places_.partner(level), gather_tag);
}

std::pair<HalvingAllReduce::Range, HalvingAllReduce::Range> HalvingAllReduce::halves(const Range& range, bool is_upper) const {
  const std::size_t middle = range.first + slice_of(0, 2, range.second - range.first, sums_.size()).second;
  const Range lower{range.first, middle};
  const Range upper{middle, range.second};
  return is_upper ? std::pair{upper, lower} : std::pair{lower, upper};
}

}  // namespace tnt
