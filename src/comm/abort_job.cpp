#include "comm/abort_job.hpp"

#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace tnt {

Error abort_job(Communicator& host, tnt_status_t status, const std::string& message) noexcept {
  host.abort(status, message);
  std::optional<Error> said = host.async_error();
  // another rank may be writing its message, which takes a moment
  for (const Deadline deadline(1.0); !said && !deadline.passed(); said = host.async_error()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return said.value_or(Error(status, message));
}

}  // namespace tnt
