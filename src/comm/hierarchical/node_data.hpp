// A fused buffer in the type that a node's memory holds, for the collectives that go by nodes.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/executor.hpp"
#include "comm/network/staging.hpp"

namespace tnt {

// By way of the buffer's own type, as in an all_reduce: contributions are rounded to it before the sum, and the sum once.
void pack_as(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, std::byte* to,
             StagingPool& staging);
void unpack_from(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, const std::byte* from,
                 StagingPool& staging);

// Waits, if there is work. The first error has been reported already, so this one is not.
void wait_quietly(const std::shared_ptr<Work>& work) noexcept;

}  // namespace tnt
