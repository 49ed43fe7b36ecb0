// Chooses the size of buckets from the bytes of a model and the measured speed of the transport.
#pragma once

#include <cstddef>

#include "comm/communicator.hpp"
#include "comm/device_communicator.hpp"

namespace tnt {

// The same on all ranks.
struct TransportSpeed {
  double latency = 0.0;           // seconds of a small all_reduce
  double seconds_per_byte = 0.0;  // of a large all_reduce, in addition
};

// Measures some all_reduce calls of 64 bytes and of 1 MiB: milliseconds in shared memory, tens of milliseconds over 1 Gbit/s.
// Collective.
[[nodiscard]] TransportSpeed measure_speed(Communicator& comm, const CallContext& call);

// The same with 64 bytes and 16 MiB of device memory. host: the same ranks.
[[nodiscard]] TransportSpeed measure_speed(Device& device, DeviceCommunicator& comm, Communicator& host,
                                           const CallContext& call);

// Small buckets start early and leave little work after the last gradient, but each bucket costs a call. For S bytes in buckets
// of b bytes the exposed time is about (S / b) * overhead + b * seconds_per_byte, with its minimum at b = sqrt(S * overhead /
// seconds_per_byte); see "The best bucket" in docs/architecture.md. The result is a power of two from 64 KiB to 64 MiB, so that
// slightly different measurements give the same plan.
[[nodiscard]] std::size_t choose_fusion_threshold(std::size_t bytes, const TransportSpeed& speed) noexcept;

inline constexpr std::size_t min_fusion_threshold = std::size_t{64} * 1024;
inline constexpr std::size_t max_fusion_threshold = std::size_t{64} * 1024 * 1024;

}  // namespace tnt
