// A deadline for MPI_Init, which has none: it waits for all ranks, and cannot be interrupted. While a rank is inside, a thread
// of it answers the other ranks of its node on an abstract Unix socket. At the deadline the thread asks them, and so it knows
// which ranks have not come, and which are stopped.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/file_descriptor.hpp"
#include "base/settings.hpp"

namespace tnt {

// The place of a process as mpirun and srun give it before MPI is initialised.
struct MpiPlace {
  std::string job;  // the same on all ranks of a job on a node, and on no others of this user
  int rank = 0;
  int ranks = 1;
  int local_ranks = 0;  // on this node; 0 if nothing tells
};

[[nodiscard]] MpiPlace read_mpi_place(const Environment& environment);

class JoinWatch {
 public:
  // Calls fail with a sentence that names the missing ranks, once, unless `joined` was called within so many seconds. After
  // fail has returned, the thread goes on to answer.
  JoinWatch(MpiPlace place, double seconds, std::function<void(const std::string&)> fail);
  ~JoinWatch();

  // MPI_Init has returned. The thread goes on to answer, because other ranks may still be inside.
  void joined();

 private:
  MpiPlace place_;
  double seconds_;
  std::function<void(const std::string&)> fail_;
  FileDescriptor listener_;
  FileDescriptor events_;  // an eventfd
  std::thread thread_;
};

// Writes the sentence to standard error and ends the process, some time after the other ranks of the node have asked it.
void end_process_that_cannot_join(const std::string& sentence);

}  // namespace tnt
