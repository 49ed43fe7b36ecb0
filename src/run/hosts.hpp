// Hosts and how many ranks each takes.
#pragma once

#include <string>
#include <vector>

namespace tnt::run {

struct Host {
  std::string name;
  int slots = 1;
};

// "node1:4,node2". A host that is named twice gets the sum. Throws std::runtime_error.
[[nodiscard]] std::vector<Host> parse_host_list(const std::string& list);
// A host in each line: "node1", "node1:4" or "node1 slots=4", with comments after #. Throws std::runtime_error with the line.
[[nodiscard]] std::vector<Host> read_hostfile(const std::string& path);
[[nodiscard]] int count_slots(const std::vector<Host>& hosts);
// The first hosts, with so many slots together.
[[nodiscard]] std::vector<Host> take_slots(const std::vector<Host>& hosts, int ranks);
// Whether all of them are this machine, so that nobody else needs to start ranks.
[[nodiscard]] bool are_here(const std::vector<Host>& hosts);

}  // namespace tnt::run
