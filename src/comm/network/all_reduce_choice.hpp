// Which algorithm an all_reduce over a network takes. All give the same bits, so only time depends on it.
#pragma once

#include <cstddef>

namespace tnt {

// gather: everybody gets all data and reduces it. doubling: recursive doubling. direct: each member reduces a slice, which all
// others send to it. halving: recursive halving and doubling.
enum class AllReduceAlgorithm { gather, doubling, direct, halving };

// bytes: of the data of one member. one_node: messages are copies in memory, and members wait for cores more than for messages.
// There the borders were measured with tnt-bench, 2 to 16 ranks on 2 cores; between nodes the terms are those of Thakur et al.
// (network_halving.hpp): log2 n messages of S bytes against 2 log2 n messages of 2 S bytes in all, and n - 1 messages at once
// to all nodes only among few.
[[nodiscard]] constexpr AllReduceAlgorithm choose_all_reduce(std::size_t members, bool one_node, std::size_t bytes) noexcept {
  constexpr std::size_t kib = 1024;
  const bool few = members <= 8;
  if (members <= 4) return members * bytes <= 64 * kib ? AllReduceAlgorithm::gather : AllReduceAlgorithm::direct;
  if (bytes <= kib && members * bytes <= 64 * kib) return AllReduceAlgorithm::gather;
  if (bytes <= (!one_node ? 16 : few ? 8 : 32) * kib) return AllReduceAlgorithm::doubling;
  if (!one_node) return members < 8 ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
  const bool direct = bytes <= 32 * kib || (bytes > 2048 * kib && members <= 32);
  return direct ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
}

}  // namespace tnt
