#include "comm/shm/error_record.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.hpp"

namespace tnt {

void ErrorRecord::write(tnt_status_t status, const std::string& message) noexcept {
  State expected = State::none;
  if (!state_.compare_exchange_strong(expected, State::writing)) {
    // another rank was first; its message is complete in a moment, unless that rank dies
    for (int i = 0; i < 1000 && state_.load() == State::writing; ++i) std::this_thread::yield();
    return;
  }
  status_ = status;
  const std::size_t length = std::min(message.size(), message_.size() - 1);
  std::memcpy(message_.data(), message.data(), length);
  message_[length] = '\0';
  state_.store(State::written);
}

std::optional<Error> ErrorRecord::read() const {
  if (state_.load() != State::written) return std::nullopt;
  return Error(status_, message_.data());
}

Error ErrorRecord::await() const {
  constexpr double longest = 0.2;
  for (const Deadline deadline(longest); !deadline.passed();) {
    if (auto error = read()) return *error;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {TNT_PEER_LOST, "a rank died, or was stopped, while it reported an error of this communicator"};
}

}  // namespace tnt
