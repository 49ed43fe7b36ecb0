// How large buckets should be, from what a model has to send and what the transport was measured to do.
#pragma once

#include <cstddef>

#include "comm/communicator.hpp"
#include "comm/device_communicator.hpp"

namespace tnt {

// The same on all ranks.
struct TransportSpeed {
  double latency = 0.0;           // seconds that a small all_reduce takes
  double seconds_per_byte = 0.0;  // of a large one, on top of that
};

// A few all_reduce of 64 bytes and of 1 MiB: milliseconds in shared memory, some tens over 1 Gbit/s. Collective.
[[nodiscard]] TransportSpeed measure_speed(Communicator& comm, const CallContext& call);

// The same with 64 bytes and 16 MiB of device memory; host: the same ranks.
[[nodiscard]] TransportSpeed measure_speed(Device& device, DeviceCommunicator& comm, Communicator& host,
                                           const CallContext& call);

// Small buckets start early and leave little to wait for after the last gradient; each costs a call. For S bytes in buckets of
// b the exposed time is about (S / b) * overhead + b * seconds_per_byte, least at b = sqrt(S * overhead / seconds_per_byte);
// see "The best bucket" in docs/architecture.md. A power of two from 64 KiB to 64 MiB, so that measurements that differ a
// little give the same plan.
[[nodiscard]] std::size_t choose_fusion_threshold(std::size_t bytes, const TransportSpeed& speed) noexcept;

inline constexpr std::size_t min_fusion_threshold = std::size_t{64} * 1024;
inline constexpr std::size_t max_fusion_threshold = std::size_t{64} * 1024 * 1024;

}  // namespace tnt
