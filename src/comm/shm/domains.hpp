// Domains: ranks of a node that are near one another, because the cores to which they are bound share a last-level cache. A
// cache line goes from one to another of them faster than between domains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tnt {

// Fewer have one level: they have few lines to look at.
inline constexpr std::size_t min_members_of_domains = 8;
// Above its lower bits, a domain's number has that of its cores; 0: not known.
inline constexpr int domain_bits = 16;

// The domain of the cores that this thread may use: those that share a cache of level 3 or more, else those of a NUMA node. 0
// if there is none that has all of these cores. root: of the system's files.
[[nodiscard]] std::uint32_t find_domain(const std::filesystem::path& root = "/");

// For the domain of each member: the first member of each domain, and after them the number of members. Empty if the members
// have one level: one is in no domain, there is one domain only, one has a single member, more members than cores, or
// members that are not consecutive.
[[nodiscard]] std::vector<std::size_t> domain_borders(std::span<const std::uint32_t> domains);

}  // namespace tnt
