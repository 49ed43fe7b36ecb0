#include "comm/shm/all_reduce.hpp"

#include <algorithm>

#include "common/memory.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

constexpr std::size_t block_bytes = std::size_t{16} * 1024;  // unit of reduction: stays in the L1 cache

bool in_place(const FusedBuffer& fused) {
  return std::all_of(fused.views().begin(), fused.views().end(), [](const TensorView& view) { return view.in == view.out; });
}

// In place, the output lines were just read and are in a cache.
Store store_for(const FusedBuffer& fused, std::size_t size, std::size_t streaming_bytes) {
  return fused.count() * size < streaming_bytes || in_place(fused) ? Store::cached : Store::streaming;
}

static_assert(Tuning::min_chunk / max_ranks >= cache_line_bytes && Tuning::max_one_shot <= Slots::slot_bytes);

}  // namespace

ShmAllReduce::ShmAllReduce(const Parts& parts, const FusedBuffer& fused, tnt_op_t op, Phases& phases)
    : on_(parts),
      fused_(fused),
      op_(op),
      phases_(phases),
      size_(dtype_size(fused.dtype())),
      per_slice_(slice_for(fused.count() * size_) / size_),
      store_(store_for(fused, size_, parts.tuning.streaming_bytes)) {}

void ShmAllReduce::operator()() {
  const std::size_t bytes = fused_.count() * size_;
  if (bytes <= on_.tuning.ll_bytes && members() <= LLBuffer::max_members) return low_latency();
  const StoreTuner::Next next = on_.store_tuner.next(bytes);
  shared_ = next.store;
  const std::int64_t begin = next.timed ? now_ns() : 0;
  bytes <= on_.tuning.one_shot_bytes ? one_shot() : two_shot();
  if (next.timed) on_.store_tuner.record(bytes, now_ns() - begin);
}

void ShmAllReduce::reduce_rooted(bool wanted) {
  wanted_ = wanted;
  const std::size_t bytes = fused_.count() * size_;
  if (bytes <= on_.tuning.ll_bytes && members() <= LLBuffer::max_members) return low_latency();
  bytes <= on_.tuning.one_shot_bytes ? one_shot() : two_shot();
}

void ShmAllReduce::synchronise() {
  on_.barrier.arrive_and_wait();
  phases_.end(Phase::wait);
}

void ShmAllReduce::low_latency() {
  using Message = std::array<std::byte, LLBuffer::max_bytes>;
  alignas(cache_line_bytes) std::array<Message, LLBuffer::max_members> messages;  // NOLINT(*-member-init): read into
  const std::size_t bytes = fused_.count() * size_;
  const std::uint64_t signature = on_.barrier.signature();
  fused_.pack(0, fused_.count(), messages[on_.self].data());
  on_.ll.write(messages[on_.self].data(), bytes, signature);
  on_.barrier.notify();
  phases_.end(Phase::pack);
  on_.barrier.await([&](std::size_t member) {
    if (member == on_.self) return false;
    const LLBuffer::Status status = on_.ll.read(member, messages[member].data(), bytes, signature);
    if (status == LLBuffer::Status::mismatch) on_.barrier.compare_calls();
    return status != LLBuffer::Status::complete;
  });
  phases_.end(Phase::wait);
  if (!wanted_) return;
  for (std::size_t member = 0; member < members(); ++member) sources_[member] = messages[member].data();
  reduce(messages[0].data(), {sources_.data(), members()}, fused_.count(), fused_.dtype(), op_);
  phases_.end(Phase::reduce);
  fused_.unpack(0, fused_.count(), messages[0].data());
  phases_.end(Phase::unpack);
}

// Works in blocks: each is summed and copied to the caller before it leaves the L1 cache.
void ShmAllReduce::one_shot() {
  alignas(cache_line_bytes) std::array<std::byte, block_bytes> result;  // NOLINT(*-member-init): written before it is read
  fused_.pack(0, fused_.count(), on_.slots.of(on_.self), shared_);
  phases_.end(Phase::pack);
  synchronise();
  const std::size_t per_block = block_bytes / size_;
  for (std::size_t at = 0; at < fused_.count() && wanted_; at += per_block) {
    const std::size_t count = std::min(per_block, fused_.count() - at);
    const auto from = sources(0, at * size_);
    // data that was stored past the caches would have to come back from memory
    if (const void* input = fused_.in_place(at, count)) sources_[on_.self] = input;
    reduce(result.data(), from, count, fused_.dtype(), op_);
    phases_.end(Phase::reduce);
    fused_.unpack(at, count, result.data());
    phases_.end(Phase::unpack);
  }
  on_.slots.advance();
}

// All chunks have the same size and fit into a slot; all slices have the same size and begin on cache lines. In bytes.
std::size_t ShmAllReduce::slice_for(std::size_t bytes) const noexcept {
  const std::size_t largest = on_.tuning.chunk_bytes / members() / cache_line_bytes * cache_line_bytes;
  const std::size_t chunks = std::max<std::size_t>(1, divided_up(bytes, largest * members()));
  return rounded_up(divided_up(bytes, chunks * members()), cache_line_bytes);
}

// A pipeline: while one chunk is packed, the previous one is reduced and the one before that is unpacked. One barrier serves
// all three, and a rank that is late for one stage finds the others still at work. The result of a slice is in its owner's
// slot, where the owner packs nothing, because all chunks are cut alike. Only the result of the slot's next chunk overwrites
// it, after the barrier that follows its unpacking.
void ShmAllReduce::two_shot() {
  const std::size_t chunks = divided_up(fused_.count(), per_slice_ * members());
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    if (step >= 2) unpack(step - 2);
    if (step >= 1 && step <= chunks) reduce_slice(step - 1);
    if (step < chunks) pack(step);
    if (step <= chunks) synchronise();
  }
  on_.slots.advance(chunks);
}

ShmAllReduce::Range ShmAllReduce::chunk_range(std::size_t chunk) const noexcept {
  const std::size_t begin = chunk * per_slice_ * members();
  return {begin, std::min(per_slice_ * members(), fused_.count() - begin)};
}

ShmAllReduce::Range ShmAllReduce::slice(std::size_t chunk, std::size_t member) const noexcept {
  const std::size_t count = chunk_range(chunk).count;
  const std::size_t begin = std::min(count, member * per_slice_);
  return {begin, std::min(per_slice_, count - begin)};
}

std::span<const void* const> ShmAllReduce::sources(std::size_t chunk, std::size_t offset) {
  for (std::size_t member = 0; member < members(); ++member) sources_[member] = on_.slots.of(member, chunk) + offset;
  return {sources_.data(), members()};
}

// Packs the slices of the other ranks. This rank's own slice is read in place.
void ShmAllReduce::pack(std::size_t chunk) {
  const Range own = slice(chunk, on_.self);
  pack_slice(chunk, {0, own.begin});
  const std::size_t end = own.begin + own.count;
  pack_slice(chunk, {end, chunk_range(chunk).count - end});
  phases_.end(Phase::pack);
}

void ShmAllReduce::pack_slice(std::size_t chunk, Range range) {
  fused_.pack(chunk_range(chunk).begin + range.begin, range.count, on_.slots.of(on_.self, chunk) + range.begin * size_,
              shared_);
}

// Works in blocks: each is read, summed, stored for the other ranks and copied to the caller before it leaves the L1 cache.
void ShmAllReduce::reduce_slice(std::size_t chunk) {
  alignas(cache_line_bytes) std::array<std::byte, block_bytes> block;  // NOLINT(*-member-init): written before it is read
  const std::size_t begin = chunk_range(chunk).begin;
  const Range own = slice(chunk, on_.self);
  const std::size_t per_block = block_bytes / size_;
  for (std::size_t at = own.begin; at < own.begin + own.count; at += per_block) {
    const std::size_t count = std::min(per_block, own.begin + own.count - at);
    std::byte* const shared = on_.slots.of(on_.self, chunk) + at * size_;
    std::byte* const result = shared_ == Store::cached ? shared : block.data();
    const auto from = sources(chunk, at * size_);
    sources_[on_.self] = fused_.in_place(begin + at, count);
    if (sources_[on_.self] == nullptr) {
      fused_.pack(begin + at, count, result);
      sources_[on_.self] = result;
    }
    reduce(result, from, count, fused_.dtype(), op_);
    fused_.unpack(begin + at, count, result, store_);
    copy(shared, result, count * size_, shared_);
  }
  phases_.end(Phase::reduce);
}

void ShmAllReduce::unpack(std::size_t chunk) {
  if (!wanted_) return;
  for (std::size_t member = 0; member < members(); ++member) {
    if (member == on_.self) continue;
    const Range range = slice(chunk, member);
    fused_.unpack(chunk_range(chunk).begin + range.begin, range.count, on_.slots.of(member, chunk) + range.begin * size_,
                  store_);
  }
  phases_.end(Phase::unpack);
}

}  // namespace tnt
