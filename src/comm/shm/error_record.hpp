// The first error of a job, or of one communicator, in memory that its ranks share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace tnt {

// All zero: no error.
class ErrorRecord {
 public:
  // The first error wins. Returns when it is complete, unless its writer died in the middle.
  void write(tnt_status_t status, const std::string& message) noexcept;
  // The error, if it is complete.
  [[nodiscard]] std::optional<Error> read() const;

  [[nodiscard]] bool empty() const noexcept { return state_.load() == State::none; }
  // The error of a record that is not empty. If its writer died in the middle, an error that says so.
  [[nodiscard]] Error await() const;

 private:
  enum class State : std::uint32_t { none, writing, written };
  static_assert(std::atomic<State>::is_always_lock_free);

  alignas(64) std::atomic<State> state_;
  tnt_status_t status_;
  std::array<char, 2048> message_;
};

}  // namespace tnt
