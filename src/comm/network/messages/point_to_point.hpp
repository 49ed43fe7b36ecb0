// Point-to-point messages over a network, independent of the collectives.
#pragma once

#include <cstddef>
#include <string>

#include "comm/communicator.hpp"
#include "comm/network/messages/exchange.hpp"

namespace tnt {

// Two chunks of a message are in flight.
class PointToPoint final : public MessageChannel {
 public:
  PointToPoint(Group& group, TagKind tag) : group_(group), tag_(tag) {}

  void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) override;
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) override;

 private:
  struct Header {
    std::uint64_t count;
    std::uint64_t dtype;
  };
  [[nodiscard]] FlightLane::Message record(Call::Kind kind, std::size_t count, tnt_dtype_t dtype, std::size_t peer,
                                           const CallContext& context);

  Group& group_;
  TagKind tag_;
  StagingPool staging_;
};

}  // namespace tnt
