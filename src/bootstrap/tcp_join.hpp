// How ranks on several nodes find each other without MPI: rank 0 listens at tcp://host:port, which all of them know.
//
// Each rank listens on a port of its own, and tells it to rank 0. When all have joined, rank 0 sends them the addresses. Then
// each rank connects to those below it, and takes those above it, with the lines of the rendezvous inside a node
// (rendezvous.hpp). A line that begins a connection carries the token, in plain text: as with MPI, the network between the
// nodes must be one that others cannot read.
#pragma once

#include <memory>

#include "base/settings.hpp"
#include "comm/network/network.hpp"

namespace tnt {

// settings.rendezvous: tcp://host:port, with the host of rank 0. Collective. Throws TNT_TIMEOUT, TNT_PEER_LOST or TNT_MISMATCH
// with the rank that is missing or wrong, on all ranks.
[[nodiscard]] std::shared_ptr<Network> join_by_tcp(const Settings& settings);

}  // namespace tnt
