// Log lines on standard error (or where a sink takes them), "tarantella[rank]: level: text", by default from rank 0 only.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <utility>

#include "base/settings.hpp"

namespace tnt {

// Before this call, the process logs warnings and errors as rank 0.
void configure_log(const Settings& settings);

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void log_line(LogLevel level, const std::string& text);

// Gets the lines in place of standard error, one at a time. None: standard error. Waits for a line that is on its way.
using LogSink = std::function<void(LogLevel level, int rank, const std::string& text)>;
void set_log_sink(LogSink take);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tnt
