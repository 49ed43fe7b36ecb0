// Which algorithm an all_reduce over a network takes. All give the same bits, so only time depends on it.
#pragma once

#include <cstddef>
#include <optional>

namespace tnt {

// gather: everybody gets all data and reduces it. doubling: recursive doubling. direct: each member reduces a slice, which all
// others send to it. halving: recursive halving and doubling.
enum class AllReduceAlgorithm { gather, doubling, direct, halving };

// From this many members on, up to how many bytes they double between nodes is measured (doubling_limit.hpp).
inline constexpr std::size_t min_members_to_measure = 3;

// The algorithm between nodes for data that is too large for doubling: with many members, direct sends too many messages at
// once.
[[nodiscard]] constexpr AllReduceAlgorithm beyond_doubling(std::size_t members) noexcept {
  return members < 8 ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
}

// bytes: of the data of one member. measured: up to how many bytes data is doubled between nodes, if it was measured. one_node:
// messages are copies in memory, and members wait for cores more than for messages. There the borders were measured with
// tnt-bench, 2 to 16 ranks on 2 cores. Between nodes they come from simulations of 64 ranks on four platforms
// (docs/scaling.md): log2 n messages of S bytes against 2 log2 n messages of 2 S bytes in all, most of them inside nodes.
[[nodiscard]] constexpr AllReduceAlgorithm choose_all_reduce(std::size_t members, bool one_node, std::size_t bytes,
                                                             std::optional<std::size_t> measured) noexcept {
  constexpr std::size_t kib = 1024;
  if (members <= 2 || (members <= 4 && one_node)) {
    return members * bytes <= 64 * kib ? AllReduceAlgorithm::gather : AllReduceAlgorithm::direct;
  }
  if (!one_node) {
    if (members <= 4 ? bytes <= 2 * kib : members * bytes <= 4 * kib) return AllReduceAlgorithm::gather;
    const std::size_t doubled = measured.value_or((members < 8 ? 16 : 4) * kib);
    return bytes <= doubled ? AllReduceAlgorithm::doubling : beyond_doubling(members);
  }
  if (bytes <= kib && members * bytes <= 64 * kib) return AllReduceAlgorithm::gather;
  if (bytes <= 8 * kib) return AllReduceAlgorithm::doubling;
  const bool direct = (bytes <= 32 * kib && members <= 8) || (bytes > 2048 * kib && members <= 32);
  return direct ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
}

}  // namespace tnt
