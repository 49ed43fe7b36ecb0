// Aborts the communication of the whole job.
#pragma once

#include <string>

#include "comm/communicator.hpp"

namespace tnt {

// Returns the error that all ranks report; another rank may have aborted first, with its own message. Thread-safe.
[[nodiscard]] Error abort_job(Communicator& host, tnt_status_t status, const std::string& message) noexcept;

}  // namespace tnt
