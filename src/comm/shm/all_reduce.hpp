// all_reduce inside one node: low latency (LL), one-shot or two-shot by size.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/shm/barrier.hpp"
#include "comm/shm/ll_buffer.hpp"
#include "comm/shm/slots.hpp"
#include "comm/shm/store_tuner.hpp"
#include "comm/shm/tuning.hpp"
#include "comm/shm/world.hpp"
#include "kernels/cpu/copy.hpp"

namespace tnt {

// One call on one rank. All other ranks are in the same call.
class ShmAllReduce {
 public:
  // What a communicator has for its calls.
  struct Parts {
    ShmBarrier& barrier;
    Slots& slots;
    LLBuffer& ll;
    StoreTuner& store_tuner;
    const Tuning& tuning;
    std::size_t self;
  };

  ShmAllReduce(const Parts& parts, const FusedBuffer& fused, tnt_op_t op, Phases& phases);
  void operator()();
  // The same sums for those ranks alone that want them; the others have no outputs.
  void reduce_rooted(bool wanted);

 private:
  // Elements of the fused buffer or of a chunk.
  struct Range {
    std::size_t begin;
    std::size_t count;
  };

  void low_latency();  // LL: every rank reads all messages, whose cache lines carry flags
  void one_shot();     // every rank reads all data: one barrier
  void two_shot();     // reduce-scatter and all-gather in one pipeline: n + 1 barriers for n chunks
  void pack(std::size_t chunk);
  void reduce_slice(std::size_t chunk);
  void unpack(std::size_t chunk);
  void synchronise();
  [[nodiscard]] std::span<const void* const> sources(std::size_t chunk, std::size_t offset);

  [[nodiscard]] std::size_t members() const noexcept { return on_.barrier.members().size(); }
  [[nodiscard]] std::size_t slice_for(std::size_t bytes) const noexcept;
  [[nodiscard]] Range chunk_range(std::size_t chunk) const noexcept;
  [[nodiscard]] Range slice(std::size_t chunk, std::size_t member) const noexcept;  // relative to the begin of the chunk
  void pack_slice(std::size_t chunk, Range range);

  const Parts on_;
  const FusedBuffer& fused_;
  const tnt_op_t op_;
  Phases& phases_;
  const std::size_t size_;                      // of an element
  const std::size_t per_slice_;                 // elements
  const Store store_;                           // into the caller's buffers
  bool wanted_ = true;                          // whether this rank needs the result
  Store shared_ = Store::cached;                // into the slots
  std::array<const void*, max_ranks> sources_;  // NOLINT(*-member-init): filled as far as it is used
};

}  // namespace tnt
