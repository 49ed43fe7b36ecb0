// The beginning of every collective over a network: each rank says to each what it calls, with the data if there is little.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/call.hpp"
#include "comm/network/exchange.hpp"

namespace tnt {

// For the collectives of one communicator, one after another.
class CollectiveHandshake {
 public:
  static constexpr std::size_t max_payload = std::size_t{8} * 1024;

  explicit CollectiveHandshake(Group& group) : group_(group) {}

  // Begins a call. Every member's message has this many bytes of data that fill writes (member: who gets them); the bytes that
  // this rank has for itself are written, too.
  using Fill = std::function<void(std::size_t member, std::byte* to)>;
  void begin(const Call& call, const CallContext& context, std::size_t payload = 0, const Fill& fill = {});

  // Returns when all members have begun it. Throws TNT_MISMATCH on all ranks if one has begun another call.
  void finish();
  // What member had for this rank; after finish, until the next begin.
  [[nodiscard]] const std::byte* payload(std::size_t member) const;

  void wait(RequestBatch& batch) const;  // for other messages of this call

 private:
  struct Header {
    std::uint64_t number;
    Call call;
  };
  [[nodiscard]] std::byte* slot(const StagingBuffer& buffer, std::size_t member) const {
    return buffer.get() + member * slot_bytes;
  }
  [[nodiscard]] std::string waiter() const;
  void compare() const;
  static constexpr std::size_t slot_bytes = sizeof(Header) + max_payload + 64 - sizeof(Header) % 64;

  Group& group_;
  StagingPool staging_;
  StagingBuffer outgoing_;
  StagingBuffer incoming_;
  std::optional<RequestBatch> batch_;
  std::uint64_t calls_ = 0;
  Call call_;
  CallContext context_{0.0};
};

}  // namespace tnt
