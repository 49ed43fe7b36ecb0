// Messages from one rank to another over a network, apart from the collectives.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"
#include "comm/network/exchange.hpp"

namespace tnt {

// Threads may send and receive at once, one for each peer and direction. Two chunks of a message are on their way.
class PointToPoint {
 public:
  explicit PointToPoint(Group& group) : group_(group) {}

  // Returns when `in` may be changed: little data may be on its way still.
  void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context);
  // A message of another count or dtype than the sender's is TNT_MISMATCH on all ranks.
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
