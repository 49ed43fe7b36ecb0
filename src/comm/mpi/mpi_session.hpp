// MPI as this process uses it: initialised by us, if nobody else did, and then finalized by us when the process exits.
#pragma once

#include <mpi.h>

#include <string>

namespace tnt {

class MpiSession {
 public:
  // Initialises MPI or looks at how the program did. Throws TNT_UNSUPPORTED if it may not be used by our threads.
  MpiSession();

  [[nodiscard]] bool serialized() const noexcept { return level_ != MPI_THREAD_MULTIPLE; }  // one thread at a time
  [[nodiscard]] std::string describe() const;  // "Open MPI v4.1.4 ..., MPI_THREAD_MULTIPLE, initialised by Tarantella"

  // The process exits without MPI_Finalize, which would wait for ranks that may never come.
  static void skip_finalize() noexcept;

 private:
  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
};

}  // namespace tnt
