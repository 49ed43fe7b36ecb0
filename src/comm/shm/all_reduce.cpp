#include "comm/shm/all_reduce.hpp"

#include <algorithm>

#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t block_bytes = std::size_t{16} * 1024;  // what is reduced at once: stays in the first-level cache

bool in_place(const Run& run) {
  return std::all_of(run.pieces().begin(), run.pieces().end(), [](const Piece& piece) { return piece.in == piece.out; });
}

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// In place the lines have just been read, and wait in a cache to be written.
Store store_for(const Run& run, std::size_t size, std::size_t streaming_bytes) {
  return run.count() * size < streaming_bytes || in_place(run) ? Store::cached : Store::streaming;
}

static_assert(Tuning::least_chunk / max_ranks >= cache_line && Tuning::most_at_once <= Slots::slot_bytes);

}  // namespace

ShmAllReduce::ShmAllReduce(ShmBarrier& barrier, Slots& slots, Lines& lines, StoreChoice& choice, const Tuning& tuning,
                           std::size_t self, const Run& run, tnt_op_t op, Phases& phases)
    : barrier_(barrier),
      slots_(slots),
      lines_(lines),
      choice_(choice),
      tuning_(tuning),
      self_(self),
      run_(run),
      op_(op),
      phases_(phases),
      size_(dtype_size(run.dtype())),
      per_slice_(slice_for(run.count() * size_) / size_),
      store_(store_for(run, size_, tuning.streaming_bytes)) {}

void ShmAllReduce::operator()() {
  const std::size_t bytes = run_.count() * size_;
  if (bytes <= tuning_.lines_bytes && members() <= Lines::most_members) return in_lines();
  const StoreChoice::Next next = choice_.next(bytes);
  shared_ = next.store;
  const std::int64_t begin = next.timed ? now_ns() : 0;
  bytes <= tuning_.at_once_bytes ? at_once() : in_chunks();
  if (next.timed) choice_.took(bytes, now_ns() - begin);
}

void ShmAllReduce::meet() {
  barrier_.meet();
  phases_.end("wait");
}

void ShmAllReduce::in_lines() {
  using Message = std::array<std::byte, Lines::most_bytes>;
  alignas(cache_line) std::array<Message, Lines::most_members> messages;  // NOLINT(*-member-init): read into
  const std::size_t bytes = run_.count() * size_;
  const std::uint64_t signature = barrier_.signature();
  run_.pack(0, run_.count(), messages[self_].data());
  lines_.write(messages[self_].data(), bytes, signature);
  barrier_.ring_bell();
  phases_.end("pack");
  barrier_.await([&](std::size_t member) {
    if (member == self_) return false;
    const Lines::Arrival arrival = lines_.read(member, messages[member].data(), bytes, signature);
    if (arrival == Lines::Arrival::other) barrier_.compare_calls();
    return arrival != Lines::Arrival::here;
  });
  phases_.end("wait");
  for (std::size_t member = 0; member < members(); ++member) sources_[member] = messages[member].data();
  reduce(messages[0].data(), {sources_.data(), members()}, run_.count(), run_.dtype(), op_);
  phases_.end("reduce");
  run_.unpack(0, run_.count(), messages[0].data());
  phases_.end("unpack");
}

// In blocks, of which each is summed and given to the caller before it leaves the first-level cache.
void ShmAllReduce::at_once() {
  alignas(cache_line) std::array<std::byte, block_bytes> result;  // NOLINT(*-member-init): written before it is read
  run_.pack(0, run_.count(), slots_.of(self_), shared_);
  phases_.end("pack");
  meet();
  const std::size_t per_block = block_bytes / size_;
  for (std::size_t at = 0; at < run_.count(); at += per_block) {
    const std::size_t count = std::min(per_block, run_.count() - at);
    const auto from = sources(0, at * size_);
    // what went past the caches would have to come back from memory
    if (const void* input = run_.in_place(at, count)) sources_[self_] = input;
    reduce(result.data(), from, count, run_.dtype(), op_);
    phases_.end("reduce");
    run_.unpack(at, count, result.data());
    phases_.end("unpack");
  }
  slots_.finish();
}

// Chunks of the same size, which fit into a slot, of slices of the same size, whose borders lie on cache lines. Bytes.
std::size_t ShmAllReduce::slice_for(std::size_t bytes) const noexcept {
  const std::size_t largest = tuning_.chunk_bytes / members() / cache_line * cache_line;
  const std::size_t chunks = std::max<std::size_t>(1, divide_up(bytes, largest * members()));
  return divide_up(divide_up(bytes, chunks * members()), cache_line) * cache_line;
}

// A pipeline: while a chunk is packed, the one before is reduced and the one before that unpacked, so that one meeting serves
// all three, and a rank that is late for one finds the others still at work. The result of a slice lies in its owner's slot,
// where the owner packs nothing as long as all chunks are cut alike: only the result of the slot's next chunk overwrites it,
// after the meeting that follows its unpacking.
void ShmAllReduce::in_chunks() {
  const std::size_t chunks = divide_up(run_.count(), per_slice_ * members());
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    if (step >= 2) unpack(step - 2);
    if (step >= 1 && step <= chunks) reduce_slice(step - 1);
    if (step < chunks) pack(step);
    if (step <= chunks) meet();
  }
  slots_.finish(chunks);
}

ShmAllReduce::Range ShmAllReduce::chunk_range(std::size_t chunk) const noexcept {
  const std::size_t begin = chunk * per_slice_ * members();
  return {begin, std::min(per_slice_ * members(), run_.count() - begin)};
}

ShmAllReduce::Range ShmAllReduce::slice(std::size_t chunk, std::size_t member) const noexcept {
  const std::size_t count = chunk_range(chunk).count;
  const std::size_t begin = std::min(count, member * per_slice_);
  return {begin, std::min(per_slice_, count - begin)};
}

std::span<const void* const> ShmAllReduce::sources(std::size_t chunk, std::size_t offset) {
  for (std::size_t member = 0; member < members(); ++member) sources_[member] = slots_.of(member, chunk) + offset;
  return {sources_.data(), members()};
}

// The slices of the others; this rank's own is read where it is.
void ShmAllReduce::pack(std::size_t chunk) {
  const Range own = slice(chunk, self_);
  pack_slice(chunk, {0, own.begin});
  const std::size_t end = own.begin + own.count;
  pack_slice(chunk, {end, chunk_range(chunk).count - end});
  phases_.end("pack");
}

void ShmAllReduce::pack_slice(std::size_t chunk, Range range) {
  run_.pack(chunk_range(chunk).begin + range.begin, range.count, slots_.of(self_, chunk) + range.begin * size_, shared_);
}

// In blocks, of which each is read, summed, kept for the others and given to the caller before it leaves the first-level cache.
void ShmAllReduce::reduce_slice(std::size_t chunk) {
  alignas(cache_line) std::array<std::byte, block_bytes> block;  // NOLINT(*-member-init): written before it is read
  const std::size_t begin = chunk_range(chunk).begin;
  const Range own = slice(chunk, self_);
  const std::size_t per_block = block_bytes / size_;
  for (std::size_t at = own.begin; at < own.begin + own.count; at += per_block) {
    const std::size_t count = std::min(per_block, own.begin + own.count - at);
    std::byte* const shared = slots_.of(self_, chunk) + at * size_;
    std::byte* const result = shared_ == Store::cached ? shared : block.data();
    const auto from = sources(chunk, at * size_);
    sources_[self_] = run_.in_place(begin + at, count);
    if (sources_[self_] == nullptr) {
      run_.pack(begin + at, count, result);
      sources_[self_] = result;
    }
    reduce(result, from, count, run_.dtype(), op_);
    run_.unpack(begin + at, count, result, store_);
    copy(shared, result, count * size_, shared_);
  }
  phases_.end("reduce");
}

void ShmAllReduce::unpack(std::size_t chunk) {
  for (std::size_t member = 0; member < members(); ++member) {
    if (member == self_) continue;
    const Range range = slice(chunk, member);
    run_.unpack(chunk_range(chunk).begin + range.begin, range.count, slots_.of(member, chunk) + range.begin * size_, store_);
  }
  phases_.end("unpack");
}

}  // namespace tnt
