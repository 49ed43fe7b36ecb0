// Where the network's own collectives are taken in place of ours.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>

#include "comm/call.hpp"

namespace tnt {

class NetworkCommunicator;

// For each collective and each power of two of bytes. The same on all ranks.
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

// Measures ours and the network's in turn, on a communicator that may take either. Collective; less than a second. Ours stay
// where the network's save less than a twentieth.
[[nodiscard]] NativeChoice measure_native(NetworkCommunicator& comm, double timeout);

}  // namespace tnt
