// The first error of a job, or of one communicator, in memory that its ranks share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "common/error.hpp"

namespace tnt {

// All zero: no error.
class ErrorRecord {
 public:
  // The first error wins. Returns when it is complete, unless its writer was killed or stopped in the middle.
  void write(tnt_status_t status, const std::string& message) noexcept;
  // The error, if there is one. Waits up to 0.2 s for the end of its message. If that does not come, the error is from now on,
  // for all ranks, that its writer was killed or stopped.
  [[nodiscard]] std::optional<Error> read();

 private:
  enum class State : std::uint32_t { none, writing, written, given_up };
  // The process that writes, and the state: in one word, because the process may be killed at any moment.
  [[nodiscard]] static std::uint32_t word(std::uint32_t process, State state) noexcept;
  [[nodiscard]] static State state_in(std::uint32_t word) noexcept;
  [[nodiscard]] static std::uint32_t process_in(std::uint32_t word) noexcept;

  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  alignas(64) std::atomic<std::uint32_t> word_;
  tnt_status_t status_;
  std::array<char, 2048> message_;
};

}  // namespace tnt
