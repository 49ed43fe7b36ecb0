#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

namespace tnt {
namespace {

struct State {
  std::atomic<LogLevel> level{LogLevel::warning};
  std::atomic<bool> shown{true};
  std::atomic<int> rank{0};
};
State state;

// Never destroyed: threads may log while the process exits.
struct Sink {
  std::mutex mutex;
  LogSink take;
};
Sink& sink() {
  static auto* const instance = new Sink;
  return *instance;
}

const char* level_word(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "?";
}

}  // namespace

void configure_log(const Settings& settings) {
  state.level = settings.log_level;
  state.shown = settings.rank == 0 || settings.log_on_all_ranks;
  state.rank = settings.rank;
}

bool log_enabled(LogLevel level) noexcept { return state.shown && level >= state.level.load(); }

void log_line(LogLevel level, const std::string& text) {
  const std::scoped_lock lock(sink().mutex);
  if (sink().take) return sink().take(level, state.rank, text);
  const std::string line = fmt::format("tarantella[{}]: {}: {}\n", state.rank.load(), level_word(level), text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write, so that lines of several ranks do not mix
}

void set_log_sink(LogSink take) {
  const std::scoped_lock lock(sink().mutex);
  sink().take = std::move(take);
}

}  // namespace tnt
