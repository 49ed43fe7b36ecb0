// Point-to-point messages over a network, independent of the collectives.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"
#include "comm/network/exchange.hpp"

namespace tnt {

// Different threads may send and receive at the same time, one for each peer and direction. Two chunks of a message are in
// flight.
class PointToPoint {
 public:
  explicit PointToPoint(Group& group) : group_(group) {}

  // Returns when `in` may be changed; small data may still be in flight.
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context);
  // TNT_MISMATCH on all ranks if the sender's count or dtype differs.
  void recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context);

 private:
  struct Header {
    std::uint64_t count;
    std::uint64_t dtype;
  };
  [[nodiscard]] std::string waiter(const std::string& what) const;

  Group& group_;
  StagingPool staging_;
};

}  // namespace tnt
