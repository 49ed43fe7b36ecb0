// Which algorithm an all_gather or a reduce_scatter over a network takes. All give the same bits, so only time depends on it.
#pragma once

#include <bit>
#include <cstddef>

namespace tnt {

// direct: each member sends to all others at once. bruck: log2 n rounds, in which what a member has doubles. ring: n - 1
// rounds, in which each member sends its neighbour what it got in the round before.
enum class AllGatherAlgorithm { direct, bruck, ring };
// halving: log2 n rounds, in which what a member has sums of is halved.
enum class ReduceScatterAlgorithm { direct, halving };

// nodes: that the members are on. On one node messages are copies in memory, which no order makes fewer. Between nodes the
// borders come from simulations of 13 and 64 ranks on the shipped platforms (docs/scaling.md). block: bytes of the largest. A
// ring passes each node's link once, however many members the node has.
[[nodiscard]] constexpr AllGatherAlgorithm choose_all_gather(std::size_t members, std::size_t nodes,
                                                             std::size_t block) noexcept {
  constexpr std::size_t kib = 1024;
  if (nodes == 1 || members <= 4) return AllGatherAlgorithm::direct;
  return block <= (nodes < members ? 4 : 256) * kib ? AllGatherAlgorithm::bruck : AllGatherAlgorithm::ring;
}

// bytes: of all blocks. Halving sends most data inside nodes. A number of members that is no power of two costs it two more
// messages of all data.
[[nodiscard]] constexpr ReduceScatterAlgorithm choose_reduce_scatter(std::size_t members, std::size_t nodes,
                                                                     std::size_t bytes) noexcept {
  constexpr std::size_t kib = 1024;
  const bool large = nodes < members && bytes >= 1024 * kib;
  const bool small = members > 16 && bytes <= 256 * kib;
  const bool halving = nodes > 1 && members >= 8 && (std::has_single_bit(members) || large || small);
  return halving ? ReduceScatterAlgorithm::halving : ReduceScatterAlgorithm::direct;
}

}  // namespace tnt
