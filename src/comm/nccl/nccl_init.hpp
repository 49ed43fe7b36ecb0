// How ranks come to a communicator of NCCL's: they agree that all can, and connect.
#pragma once

#include "comm/nccl/nccl_communicator.hpp"

namespace tnt {

// Collective: throws the same on all ranks if one has an error; it is named.
void agree_on_error(Communicator& host, const std::optional<Error>& own, double timeout);

// Collective: the library that the options name; throws the same on all ranks if one has none.
[[nodiscard]] std::shared_ptr<const NcclLibrary> open_nccl(Communicator& host, const NcclOptions& options);

// Collective: throws the same on all ranks if they may not connect: other versions, other options, one GPU twice.
void check_compatible(Device& device, Communicator& host, const NcclOptions& options, const NcclLibrary& library);

// Collective: makes the unique ids and connects host's ranks.
void init_nccl(NcclHandle& handle, Communicator& host, const NcclOptions& options);

[[nodiscard]] nccl::ncclConfig_t nccl_config(const NcclOptions& options);

// NCCL takes the algorithm and the protocol from the environment only: for the whole process, what is not set already.
void pin_environment();

}  // namespace tnt
