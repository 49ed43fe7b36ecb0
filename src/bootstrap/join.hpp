// Makes this process a rank of its job and chooses the transport.
//
// src/bootstrap finds the other ranks of a job: from the launcher's environment, from MPI, or alone. It makes the communicator
// of all ranks; communicators themselves are in src/comm.
#pragma once

#include <memory>
#include <string>

#include "base/settings.hpp"
#include "comm/communicator.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/network/messages/network.hpp"

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

// The part of it for ranks that know where they meet: settings have the place and the token, and no other place is looked for.
// A process may be in several such jobs at once, which have nothing in common: neither memory nor connections, nor errors.
[[nodiscard]] JoinedJob join_at_rendezvous(Settings& settings);

// Joins a job whose ranks are connected by a network: finds the nodes and chooses the transport.
// mpi_variable: the environment variable that showed that there are several ranks, if MPI connects them. Collective. Writes
// rank, ranks, rendezvous and token to settings. Throws the same message on all ranks.
[[nodiscard]] JoinedJob join_network(std::shared_ptr<Network> network, const std::string& mpi_variable, Settings& settings);

// The recorder of the rank that settings say. Null, with a line in the log if that is a fault, if nothing can be recorded.
[[nodiscard]] std::shared_ptr<FlightRecorder> open_flight_recorder(const Settings& settings);

// How ranks on several nodes find each other without MPI: rank 0 listens at tcp://host:port, which all of them know.
//
// Each rank listens on a port of its own, and tells it to rank 0. When all have joined, rank 0 sends them the addresses. Then
// each rank connects to those below it, and takes those above it, with the lines of the rendezvous inside a node
// (rendezvous.hpp). A line that begins a connection carries the token, in plain text: as with MPI, the network between the
// nodes must be one that others cannot read.
//
// settings.rendezvous: tcp://host:port, with the host of rank 0. Collective. Throws TNT_TIMEOUT, TNT_PEER_LOST or TNT_MISMATCH
// with the rank that is missing or wrong, on all ranks.
[[nodiscard]] std::shared_ptr<Network> join_by_tcp(const Settings& settings);

// The variable that shows that mpirun or srun started this process as one of several ranks, such as "OMPI_COMM_WORLD_SIZE"; ""
// if the process was not started as one of several MPI ranks.
[[nodiscard]] std::string mpi_launcher_variable(const Environment& environment);

// Throws TNT_UNSUPPORTED if srun started this process as one of several tasks that cannot find each other, for want of PMI:
// each would take itself for the only rank. Programs that are meant so set TNT_SIZE=1.
void refuse_tasks_without_pmi(const Environment& environment);

}  // namespace tnt
