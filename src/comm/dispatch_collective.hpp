// Any collective of the host's, as data says which.
#pragma once

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// Blocks, as the function of comm's that the call names. TNT_INVALID_ARGUMENT for a message.
void dispatch_collective(Communicator& comm, const Call& call, const void* in, void* out, const CallContext& context);

}  // namespace tnt
