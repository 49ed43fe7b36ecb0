#include "comm/ending.hpp"

#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace tnt {

Error end_communication(Communicator& host, tnt_status_t status, const std::string& message) noexcept {
  host.abort(status, message);
  std::optional<Error> said = host.ending();
  // one that another rank is just writing takes a moment
  for (const Deadline deadline(1.0); !said && !deadline.passed(); said = host.ending()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return said.value_or(Error(status, message));
}

}  // namespace tnt
