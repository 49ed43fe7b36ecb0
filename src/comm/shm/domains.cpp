#include "comm/shm/domains.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "base/read_text.hpp"

namespace tnt {
namespace {

// The cores in a list such as 0-3,8.
cpu_set_t cores_in(const std::string& list) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::istringstream text(list);
  for (int first = 0; text >> first; text.ignore()) {
    int last = first;
    if (text.peek() == '-') text.ignore() >> last;
    for (int core = first; core <= last && core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
  }
  return cores;
}

int first_of(const cpu_set_t& cores) {
  int core = 0;
  while (core < CPU_SETSIZE && !CPU_ISSET(core, &cores)) ++core;
  return core;
}

// Those that share the last-level cache with this one, or none. A private cache of level 2 is no domain.
cpu_set_t neighbours_by_cache(int core, const std::filesystem::path& root) {
  int last = 2;
  std::string neighbours;
  for (int index = 0;; ++index) {
    const auto cache = root / fmt::format("sys/devices/system/cpu/cpu{}/cache/index{}", core, index);
    int level = 0;
    if (!(std::istringstream(read_text(cache / "level")) >> level)) return cores_in(neighbours);
    if (level > last) neighbours = read_text(cache / "shared_cpu_list");
    last = std::max(last, level);
  }
}

cpu_set_t neighbours_by_memory(int core, const std::filesystem::path& root) {
  std::error_code ignored;
  for (const auto& node : std::filesystem::directory_iterator(root / "sys/devices/system/node", ignored)) {
    const cpu_set_t cores = cores_in(read_text(node.path() / "cpulist"));
    if (CPU_ISSET(core, &cores)) return cores;
  }
  return cores_in("");
}

}  // namespace

std::uint32_t find_domain(const std::filesystem::path& root) {
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return 0;
  const int core = first_of(own);
  cpu_set_t domain = neighbours_by_cache(core, root);
  if (CPU_COUNT(&domain) == 0) domain = neighbours_by_memory(core, root);
  cpu_set_t both;
  CPU_AND(&both, &own, &domain);
  if (CPU_EQUAL(&both, &own) == 0) return 0;
  return static_cast<std::uint32_t>(CPU_COUNT(&domain) << domain_bits | (first_of(domain) + 1));
}

std::vector<std::size_t> domain_borders(std::span<const std::uint32_t> domains) {
  if (domains.size() < min_members_of_domains) return {};
  std::vector<std::size_t> borders;
  std::vector<std::uint32_t> seen;
  for (std::size_t member = 0; member < domains.size(); ++member) {
    if (member > 0 && domains[member] == domains[member - 1]) continue;
    if (domains[member] == 0 || std::ranges::find(seen, domains[member]) != seen.end()) return {};
    seen.push_back(domains[member]);
    borders.push_back(member);
  }
  borders.push_back(domains.size());
  for (std::size_t domain = 0; domain < seen.size(); ++domain) {
    const std::size_t own = borders[domain + 1] - borders[domain];
    const std::size_t cores = seen[domain] >> domain_bits;
    if (own == 1 || (cores > 0 && own > cores)) return {};
  }
  return seen.size() == 1 ? std::vector<std::size_t>{} : borders;
}

}  // namespace tnt
