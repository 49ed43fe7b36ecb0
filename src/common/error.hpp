// The one error type of the library: a status and a message. src/api converts it at the C boundary.
//
// src/common has what the kernels use as well as all that is above them: errors, element types, sizes. It includes no other
// folder but that of tarantella.h.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "tarantella/tarantella.h"

namespace tnt {

class Error : public std::runtime_error {
 public:
  Error(tnt_status_t status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] tnt_status_t status() const noexcept { return status_; }

 private:
  tnt_status_t status_;
};

template <typename... Args>
[[noreturn]] void fail(tnt_status_t status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

// Any exception as ours: TNT_SYSTEM unless it is an Error.
[[nodiscard]] Error to_error(const std::exception& exception);

// Throws TNT_SYSTEM with the text of errno. what: the first part of the message, such as "cannot map 4096 bytes".
[[noreturn]] void fail_errno(const std::string& what);

const char* status_name(tnt_status_t status) noexcept;

}  // namespace tnt
