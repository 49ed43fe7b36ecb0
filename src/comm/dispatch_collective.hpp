// Calls the collective that a Call describes.
#pragma once

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// Blocks. Throws TNT_INVALID_ARGUMENT for send and recv.
void dispatch_collective(Communicator& comm, const Call& call, const void* in, void* out, const CallContext& context);

}  // namespace tnt
