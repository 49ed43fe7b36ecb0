// Messages to people: one line each on standard error, "tarantella[rank]: level: text", by default from rank 0 only.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/settings.hpp"

namespace tnt {

// Until this is called, warnings and errors of the process are shown as those of rank 0.
void configure_log(const Settings& settings);

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void log_line(LogLevel level, const std::string& text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tnt
