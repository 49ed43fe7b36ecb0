// Messages from one member of a communicator to another, apart from its collectives.
#pragma once

#include <cstddef>

#include "comm/communicator.hpp"
#include "common/dtype.hpp"
#include "common/non_copyable.hpp"

namespace tnt {

// Threads may send and receive at once, one for each peer and direction.
class MessageChannel : NonCopyable {
 public:
  virtual ~MessageChannel() = default;

  // Returns when `in` may be changed; the message may still be on its way then.
  virtual void send(const void* in, std::size_t count, tnt_dtype_t dtype, std::size_t to, const CallContext& context) = 0;
  // A message of another count or dtype than the sender's is TNT_MISMATCH on all ranks.
  virtual void recv(void* out, std::size_t count, tnt_dtype_t dtype, std::size_t from, const CallContext& context) = 0;
};

}  // namespace tnt
