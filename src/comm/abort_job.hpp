// Ends the communication of the whole job.
#pragma once

#include <string>

#include "comm/communicator.hpp"

namespace tnt {

// Returns what all ranks say: another one may have been first, with a message of its own. From any thread.
[[nodiscard]] Error abort_job(Communicator& host, tnt_status_t status, const std::string& message) noexcept;

}  // namespace tnt
