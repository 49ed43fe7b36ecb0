// Joining a job whose ranks have a network between them: who is on which node, and what carries their collectives.
#pragma once

#include <memory>
#include <string>

#include "launch/join.hpp"

namespace tnt {

// sign: the environment variable that said that there are several ranks. Collective; writes rank, ranks, rendezvous and token
// to settings. Throws the same message on all ranks.
[[nodiscard]] JoinedJob join_network(std::shared_ptr<Network> network, const std::string& mpi_variable, Settings& settings);

}  // namespace tnt
