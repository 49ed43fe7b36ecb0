#include "comm/shm/error_record.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.hpp"

namespace tnt {

std::uint32_t ErrorRecord::word(std::uint32_t process, State state) noexcept {
  return process << 2 | static_cast<std::uint32_t>(state);  // Linux has at most 2^22 processes
}

ErrorRecord::State ErrorRecord::state_in(std::uint32_t word) noexcept { return static_cast<State>(word & 3U); }

std::uint32_t ErrorRecord::process_in(std::uint32_t word) noexcept { return word >> 2; }

void ErrorRecord::write(tnt_status_t status, const std::string& message) noexcept {
  const auto self = static_cast<std::uint32_t>(getpid());
  std::uint32_t now = word(0, State::none);
  if (!word_.compare_exchange_strong(now, word(self, State::writing))) {
    // another rank was first; its message is complete in a moment, unless that rank dies
    for (int i = 0; i < 1000 && state_in(word_.load()) == State::writing; ++i) std::this_thread::yield();
    return;
  }
  status_ = status;
  const std::size_t length = std::min(message.size(), message_.size() - 1);
  std::memcpy(message_.data(), message.data(), length);
  message_[length] = '\0';
  now = word(self, State::writing);
  (void)word_.compare_exchange_strong(now, word(self, State::written));  // unless it was given up: all ranks say the same
}

std::optional<Error> ErrorRecord::read() {
  std::uint32_t now = word_.load();
  if (state_in(now) == State::none) return std::nullopt;
  if (state_in(now) == State::writing) {
    constexpr double longest = 0.2;
    for (const Deadline deadline(longest); state_in(now) == State::writing && !deadline.passed(); now = word_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (state_in(now) == State::writing && word_.compare_exchange_strong(now, word(process_in(now), State::given_up))) {
      now = word(process_in(now), State::given_up);
    }
  }
  if (state_in(now) == State::written) return Error(status_, message_.data());
  return Error(TNT_PEER_LOST, fmt::format("process {} was killed, or stopped, while it reported an error", process_in(now)));
}

}  // namespace tnt
