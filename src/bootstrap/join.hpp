// Makes this process a rank of its job and chooses the transport.
//
// src/bootstrap finds the other ranks of a job: from the launcher's environment, from MPI, or alone. It makes the communicator
// of all ranks; communicators themselves are in src/comm.
#pragma once

#include <memory>

#include "base/settings.hpp"
#include "comm/communicator.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/network/network.hpp"

namespace tnt {

struct JoinedJob {
  std::unique_ptr<Communicator> communicator;  // of all ranks
  std::shared_ptr<Network> network;            // under mpirun and srun, and with a rendezvous tcp://host:port; else null
  std::shared_ptr<FlightRecorder> recorder;    // of this rank's calls; null without our launcher
};

// Started by our launcher, or with a place that the caller gives (explicit_place): shared memory, or with a rendezvous
// tcp://host:port a network of TCP. Started by mpirun or srun: MPI gives rank and size, which are written to settings, and
// carries the messages. Where there is a network, TNT_TRANSPORT chooses the transport. Otherwise this process is a job of one
// rank. mpi_comm: the address of an MPI_Comm, whose processes are the ranks; may be null.
[[nodiscard]] JoinedJob join_job(Settings& settings, bool explicit_place, const void* mpi_comm = nullptr);

}  // namespace tnt
