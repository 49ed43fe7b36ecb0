// Calls the collective that a Call describes.
#pragma once

#include "comm/call.hpp"
#include "comm/communicator.hpp"

namespace tnt {

// Blocks. Throws TNT_INVALID_ARGUMENT for send, recv and the uneven forms.
void dispatch_collective(Communicator& comm, const Call& call, const void* in, void* out, const CallContext& context);

// all_reduce of one array, whose result takes its place.
inline void all_reduce_in_place(Communicator& comm, void* data, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                const CallContext& context) {
  dispatch_collective(comm, {.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, data, data, context);
}

}  // namespace tnt
