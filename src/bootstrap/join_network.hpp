// Joins a job whose ranks are connected by a network: finds the nodes and chooses the transport.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/join.hpp"

namespace tnt {

// mpi_variable: the environment variable that showed that there are several ranks, if MPI connects them. Collective. Writes
// rank, ranks, rendezvous and token to settings. Throws the same message on all ranks.
[[nodiscard]] JoinedJob join_network(std::shared_ptr<Network> network, const std::string& mpi_variable, Settings& settings);

// The recorder of the rank that settings say. Null, with a line in the log if that is a fault, if nothing can be recorded.
[[nodiscard]] std::shared_ptr<FlightRecorder> open_flight_recorder(const Settings& settings);

}  // namespace tnt
