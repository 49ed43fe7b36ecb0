// Large blocks that only move: each rank reads them where they lie in the memory of the other ranks' processes, so that they
// are copied once, not twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/shm/barrier.hpp"
#include "comm/shm/path_tuner.hpp"
#include "comm/shm/slots.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

// Lets the other ranks of this node read this process' memory where the system asks for that (Yama's ptrace_scope 1): those
// that its parent has started, and no other process.
void permit_direct_reads() noexcept;

// The system may forbid it at any time: a container's filter, ptrace_scope 2, memory that a driver has mapped. The ranks then
// agree to move the blocks, and all later ones of the communicator, through the slots.
class DirectMoves {
 public:
  // Smaller blocks are faster through the slots, which are in the caches: measured on two virtual cores.
  static constexpr std::size_t min_bytes = std::size_t{32} * 1024;

  struct Block {  // one that this rank takes
    void* to;
    std::size_t bytes;
  };

  DirectMoves(ShmBarrier& barrier, Slots& slots, const ShmWorld& world, std::size_t self) noexcept
      : barrier_(barrier), slots_(slots), world_(world), self_(self) {}

  // largest: bytes of the largest block between two ranks. Both are the same on all ranks.
  [[nodiscard]] bool suits(std::size_t largest) const noexcept { return possible_ && largest >= min_bytes; }

  // Over all members. Collective.
  [[nodiscard]] PathTuner::Times sum_of_all(const PathTuner::Times& own);

  // For each member, what this rank gives it and takes from it. may_be_read: whether what is given stays as it is while others
  // read it, though this rank writes what it takes. ahead: bytes of each block given that this rank brings into the caches
  // while others read it, because it has nothing else to do. Returns whether the blocks were moved, the same on all ranks.
  // Throws as the barrier does.
  [[nodiscard]] bool move(std::span<const void* const> given, std::span<const Block> taken, bool may_be_read,
                          std::size_t ahead = 0);

 private:
  enum class Answer : std::uint64_t { never, not_now, yes };
  [[nodiscard]] Answer least(Answer own);
  [[nodiscard]] bool read(std::span<const void* const> given, std::span<const Block> taken) const;

  ShmBarrier& barrier_;
  Slots& slots_;
  const ShmWorld& world_;
  std::size_t self_;
  bool possible_ = true;
};

// How the blocks of one call move. largest: as for DirectMoves::suits. Collective.
class MovePath {
 public:
  MovePath(DirectMoves& moves, PathTuner& tuner, std::size_t largest);

  [[nodiscard]] bool is_direct() const noexcept { return next_.path == Path::direct; }
  void end();  // of the call

 private:
  PathTuner& tuner_;
  std::size_t bytes_;
  PathTuner::Next next_{Path::slots, false, false};
  std::int64_t begin_ = 0;
};

}  // namespace tnt
