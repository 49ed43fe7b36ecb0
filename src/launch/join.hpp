// How a process becomes a rank of its job, and what then carries its collectives.
#pragma once

#include <memory>

#include "base/settings.hpp"
#include "comm/communicator.hpp"
#include "comm/network/network.hpp"

namespace tnt {

struct JoinedJob {
  std::unique_ptr<Communicator> communicator;  // of all ranks
  std::shared_ptr<Network> network;            // under mpirun and srun; else null
};

// Started by our launcher, or by a caller who said where the process stands (placed): shared memory. Started by mpirun or srun:
// MPI says which rank of how many this is, which is written to settings, and TNT_TRANSPORT what carries the data. Else the job
// is this process alone.
[[nodiscard]] JoinedJob join_job(Settings& settings, bool explicit_place);

}  // namespace tnt
