// A platform file of SimGrid: the nodes of a machine, their links, and what Tarantella has to know of them beyond that.
#pragma once

#include <simgrid/s4u/Engine.hpp>
#include <string>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {

struct Platform {
  std::vector<simgrid::s4u::Host*> nodes;
  int ranks_per_node = 1;            // of the property "ranks" of the hosts
  double memory_bytes_per_second{};  // of a node, of the property "memory_bandwidth"; 0: memory takes no time
  [[nodiscard]] std::size_t max_ranks() const { return nodes.size() * static_cast<std::size_t>(ranks_per_node); }
};

// Throws Failure with code 2 and one line if the file is not there, is no platform, or has too few nodes for the ranks. Before
// it an Engine must exist, and SMPI_init must have been called: the file may set what these define.
[[nodiscard]] Platform load_platform(const simgrid::s4u::Engine& engine, const std::string& file, int ranks);

}  // namespace tnt::bench
