// Point-to-point messages through shared memory: a ring of packets for each ordered pair of ranks, independent of the
// collectives.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/flight_recorder.hpp"
#include "comm/shm/peer_monitor.hpp"
#include "comm/shm/wait.hpp"

namespace tnt {

// A message travels in packets; two packets of a pair may be in flight.
class ShmMailbox final : public MessageChannel {
 public:
  [[nodiscard]] static std::size_t bytes(std::size_t members) noexcept;

  // memory: bytes(members) zero bytes that all members share. members: their ranks in the job; self: an index into members.
  // lane: records the messages.
  ShmMailbox(PeerMonitor& monitor, std::byte* memory, const std::vector<int>& members, std::size_t self, FlightLane lane = {});

  // Returns when all of the message is in the ring or was received.
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) override;
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) override;

 private:
  static constexpr std::size_t n_slots = 2;
  struct Message {  // in the first packet
    std::uint64_t count;
    tnt_dtype_t dtype;
    bool operator==(const Message&) const = default;
  };
  struct Channel {
    EventCount event_count;
    alignas(64) std::atomic<std::uint64_t> written;  // packets so far
    alignas(64) std::atomic<std::uint64_t> consumed;
    std::array<Message, n_slots> messages;
  };

  [[nodiscard]] static std::size_t packet_bytes(std::size_t members) noexcept;
  [[nodiscard]] static std::size_t channel_bytes(std::size_t members) noexcept;
  void check(const WaitInfo& info, const Deadline& deadline);
  [[nodiscard]] Channel& channel(std::size_t from, std::size_t to) const noexcept;
  [[nodiscard]] std::byte* packet(Channel& channel, std::uint64_t number) const noexcept;

  PeerMonitor& monitor_;
  std::byte* memory_;
  const std::vector<int>& members_;
  std::size_t self_;
  std::size_t packet_bytes_;
  BackoffPolicy backoff_;
  FlightLane lane_;
};

}  // namespace tnt
