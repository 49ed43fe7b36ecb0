// Forks of this process. A rank's fork has copies of its memory and descriptors, but none of its threads, and the other ranks
// would take its messages for the rank's own data. The C API therefore refuses it (src/api/boundary.hpp).
#pragma once

#include <atomic>

#include "common/non_copyable.hpp"

namespace tnt {

namespace forks {
extern std::atomic<bool> of_rank;  // in a fork of a rank: true
}

// Whether this process is a fork of a process that had joined a job, or was joining one. Cost: one relaxed load.
[[nodiscard]] inline bool is_fork_of_rank() noexcept { return forks::of_rank.load(std::memory_order_relaxed); }

// From now on, forks of this process are forks of a rank; with false, they may join a job of their own. Thread-safe. A child of
// vfork or posix_spawn, which only calls exec, is never meant. Throws TNT_SYSTEM when memory is exhausted.
void set_rank(bool is_rank);

// Registers a descriptor that forks of this process close, so that they do not keep its file alive.
class ClosedInForks : NonCopyable {
 public:
  explicit ClosedInForks(int descriptor);
  ~ClosedInForks();

 private:
  int descriptor_;
};

}  // namespace tnt
