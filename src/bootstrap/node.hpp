// The node of a rank: its identity, and shared memory among its ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "comm/shm/world.hpp"

namespace tnt {

// Equal on two ranks that can share memory, see each other's processes and connect to an abstract socket: the same running
// kernel, network namespace and process namespace. settings.node splits a machine into several nodes, for tests.
[[nodiscard]] std::string node_identity(const Settings& settings);

// Connects the ranks at settings.rendezvous and shares memory among them. recorder: as for ShmWorld. check: as for
// lead_rendezvous.
[[nodiscard]] std::shared_ptr<ShmWorld> join_node(const Settings& settings, std::shared_ptr<FlightRecorder> recorder = nullptr,
                                                  const std::function<void()>& check = {});

// The same for the ranks of one node of a larger job. members: the ranks of this node in ascending order; node: its number.
[[nodiscard]] std::shared_ptr<ShmWorld> join_node(const Settings& settings, const std::vector<int>& members, int node,
                                                  std::shared_ptr<FlightRecorder> recorder = nullptr,
                                                  const std::function<void()>& check = {});

}  // namespace tnt
