// The uneven blocks of the collectives with v: of n ranks, rank r has a share of the elements in proportion to r + 1. Inline,
// because the plug-ins of peers need the same ones.
#pragma once

#include <cstddef>
#include <vector>

namespace tnt::bench {

// Where the rank's share begins. That of rank n is the end of all.
[[nodiscard]] inline std::size_t share_begin(std::size_t all, int ranks, int rank) {
  const auto sum_to = [](int n) { return static_cast<std::size_t>(n) * (static_cast<std::size_t>(n) + 1) / 2; };
  const std::size_t parts = sum_to(ranks);
  return all / parts * sum_to(rank) + all % parts * sum_to(rank) / parts;
}

[[nodiscard]] inline std::size_t share(std::size_t all, int ranks, int rank) {
  return share_begin(all, ranks, rank + 1) - share_begin(all, ranks, rank);
}

[[nodiscard]] inline std::vector<std::size_t> shares(std::size_t all, int ranks) {
  std::vector<std::size_t> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(share(all, ranks, rank));
  return result;
}

}  // namespace tnt::bench
