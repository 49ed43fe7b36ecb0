// The node that a rank runs on: what tells it from others, and how its ranks come to share memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

// Equal on two ranks if they can share memory, see each other's processes and meet at an abstract socket: one running kernel,
// one network and process namespace. settings.node makes one machine several nodes, for tests.
[[nodiscard]] std::string node_identity(const Settings& settings);

// Meets the other ranks at settings.rendezvous and shares memory with them.
[[nodiscard]] std::shared_ptr<ShmWorld> join_node(const Settings& settings);

// The same for the ranks of this node alone, where the job has others: members are theirs, in ascending order, and node is the
// node's number.
[[nodiscard]] std::shared_ptr<ShmWorld> join_node(const Settings& settings, const std::vector<int>& members, int node);

}  // namespace tnt
