// Which algorithm a collective over a network takes: by the size of the data, with borders that are measured once, when the job
// starts, or fixed. All of ours give the same bits, so only time depends on it. All ranks choose alike.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string>

#include "comm/call.hpp"

namespace tnt {

class NetworkCommunicator;

// gather: everybody gets all data and reduces it. doubling: recursive doubling. direct: each member reduces a slice, which all
// others send to it. halving: recursive halving and doubling.
enum class AllReduceAlgorithm { gather, doubling, direct, halving };
// direct: each member sends to all others at once. bruck: log2 n rounds, in which what a member has doubles. ring: n - 1
// rounds, in which each member sends its neighbour what it got in the round before.
enum class AllGatherAlgorithm { direct, bruck, ring };
// halving: log2 n rounds, in which what a member has sums of is halved.
enum class ReduceScatterAlgorithm { direct, halving };

// The algorithm between nodes for data that is too large for doubling: with many members, direct sends too many messages at
// once.
[[nodiscard]] constexpr AllReduceAlgorithm beyond_doubling(std::size_t members) noexcept {
  return members < 8 ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
}

// Between nodes an all_reduce doubles data of these bytes: less is gathered, more goes beyond doubling.
struct DoublingRange {
  std::size_t above;
  std::size_t up_to;
};

[[nodiscard]] constexpr DoublingRange default_doubling(std::size_t members) noexcept {
  constexpr std::size_t kib = 1024;
  return {members <= 4 ? 2 * kib : 4 * kib / members, (members < 8 ? 16 : 4) * kib};
}

// bytes: of the data of one member. measured: what is doubled between nodes, if it was measured. one_node: messages are copies
// in memory, and members wait for cores more than for messages. There the borders were measured with tnt-bench, 2 to 16 ranks
// on 2 cores. Between nodes the defaults come from simulations of 64 ranks on four platforms (docs/scaling.md): log2 n messages
// of S bytes against 2 log2 n messages of 2 S bytes in all, most of them inside nodes.
[[nodiscard]] constexpr AllReduceAlgorithm choose_all_reduce(std::size_t members, bool one_node, std::size_t bytes,
                                                             std::optional<DoublingRange> measured) noexcept {
  constexpr std::size_t kib = 1024;
  if (members <= 2 || (members <= 4 && one_node)) {
    return members * bytes <= 64 * kib ? AllReduceAlgorithm::gather : AllReduceAlgorithm::direct;
  }
  if (!one_node) {
    const DoublingRange doubled = measured.value_or(default_doubling(members));
    if (bytes <= doubled.above) return AllReduceAlgorithm::gather;
    return bytes <= doubled.up_to ? AllReduceAlgorithm::doubling : beyond_doubling(members);
  }
  if (bytes <= kib && members * bytes <= 64 * kib) return AllReduceAlgorithm::gather;
  if (bytes <= 8 * kib) return AllReduceAlgorithm::doubling;
  const bool direct = (bytes <= 32 * kib && members <= 8) || (bytes > 2048 * kib && members <= 32);
  return direct ? AllReduceAlgorithm::direct : AllReduceAlgorithm::halving;
}

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

// Where the network's own collectives are taken in place of ours: for each collective and each power of two of bytes.
class NativeChoice {
 public:
  [[nodiscard]] static NativeChoice everywhere() {
    NativeChoice all;
    for (auto& sizes : all.taken_) sizes.fill(true);
    return all;
  }
  // bytes: of one member's input.
  [[nodiscard]] bool takes(Call::Kind kind, std::size_t bytes) const noexcept {
    return kind < kinds && taken_[kind][size_class(bytes)];
  }
  // From this many bytes on.
  void set(Call::Kind kind, std::size_t bytes, bool taken) noexcept {
    for (std::size_t i = size_class(bytes); i < sizes; ++i) taken_[kind][i] = taken;
  }
  // "all_reduce 4 KiB to 63 KiB and from 1 MiB, all_gather from 0": for the log.
  [[nodiscard]] std::string describe() const;

 private:
  static constexpr std::size_t kinds = 3;  // all_reduce, reduce_scatter, all_gather
  static constexpr std::size_t sizes = 32;
  static_assert(Call::all_reduce < kinds && Call::reduce_scatter < kinds && Call::all_gather < kinds);
  [[nodiscard]] static std::size_t size_class(std::size_t bytes) noexcept {
    return std::min(static_cast<std::size_t>(std::bit_width(bytes)), sizes - 1);
  }

  std::array<std::array<bool, sizes>, kinds> taken_{};
};

// Measurements are collective, when a job starts, on a communicator that has taken no choice yet.

// What an all_reduce between nodes doubles: log2 n messages of all data cost less than twice as many of half of it where
// messages are slow beside bytes, and than messages to all others, or of the data of several members, where they are not.
// Milliseconds. Nothing for two members and on one node, where borders are fixed.
[[nodiscard]] std::optional<DoublingRange> measure_doubling(NetworkCommunicator& comm, double timeout);
// Ours and the network's in turn, less than a second. Ours stay where the network's save less than a twentieth.
[[nodiscard]] NativeChoice measure_native(NetworkCommunicator& comm, double timeout);

}  // namespace tnt
