// Creates NCCL communicators: the ranks check that they are compatible, then connect.
#pragma once

#include <optional>
#include <string>

#include "comm/nccl/communicator.hpp"

namespace tnt {

// Collective: if a rank has an error, all ranks throw it with that rank's name.
void agree_on_error(Communicator& host, const std::optional<Error>& own, double timeout);

// Collective: opens the library that the options name. If a rank has none, all ranks throw the same error.
[[nodiscard]] std::shared_ptr<const NcclLibrary> open_nccl(Communicator& host, const NcclOptions& options);

// Collective: whether two ranks use one GPU, which NCCL refuses unless NCCL_MULTI_RANK_GPU_ENABLE is set. The same sentence on
// all ranks.
[[nodiscard]] std::optional<std::string> find_shared_gpu(Device& device, Communicator& host, const NcclOptions& options,
                                                         const NcclLibrary* library = nullptr);

// Collective: all ranks throw the same error if they have different versions or options.
void check_compatible(Communicator& host, const NcclOptions& options, const NcclLibrary& library);

// Collective: creates the unique ids and connects the ranks of host.
void init_nccl(NcclHandle& handle, Communicator& host, const NcclOptions& options);

[[nodiscard]] nccl::ncclConfig_t nccl_config(const NcclOptions& options);

// NCCL reads its algorithm and protocol from the environment only, for the whole process. Variables that are set are kept.
void pin_environment();

}  // namespace tnt
