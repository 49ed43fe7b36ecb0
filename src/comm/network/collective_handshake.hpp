// The first message of every collective over a network: each rank tells each other rank its call. Small data travels with it.
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

  // Begins a call. fill writes `payload` bytes of data for each member, including the calling rank.
  using Fill = std::function<void(std::size_t member, std::byte* to)>;
  void begin(const Call& call, const CallContext& context, std::size_t payload = 0, const Fill& fill = {});

  // Returns when all members have begun the call. Throws TNT_MISMATCH on all ranks if a member has begun another call.
  void finish();
  // The data of `member` for this rank. Valid after finish, until the next begin.
  [[nodiscard]] const std::byte* payload(std::size_t member) const;

  void wait(RequestBatch& batch) const;  // for later messages of the same call

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
