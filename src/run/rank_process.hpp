// One rank of a job on this host, and what it has started.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.hpp"

namespace tnt::run {

// The words of a command for exec, as long as the command exists.
[[nodiscard]] std::vector<char*> argv_of(const std::vector<std::string>& command);

// How a process has ended.
struct End {
  int code = 0;
  int signal = 0;

  [[nodiscard]] bool well() const noexcept { return code == 0 && signal == 0; }
  [[nodiscard]] int exit_code() const noexcept { return signal != 0 ? 128 + signal : code; }  // as a shell says it
  [[nodiscard]] std::string text() const;  // "exited with code 3", "was killed by SIGKILL"
};

[[nodiscard]] std::string signal_name(int number);

using Variables = std::vector<std::pair<std::string, std::string>>;

class RankProcess {
 public:
  // Starts it, as the leader of a session of its own. It dies with this process. Throws Exit, with code 126 or 127, if the
  // program cannot be started.
  RankProcess(const std::vector<std::string>& command, const Variables& variables, bool keeps_input);

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] const std::optional<End>& ended() const noexcept { return end_; }
  FileDescriptor& output() noexcept { return output_; }
  FileDescriptor& errors() noexcept { return errors_; }

  // Looks whether it has ended. It stays a zombie until `reap`, so that its number, and that of its group, are its own.
  bool has_ended();
  // To it and to all processes of its group.
  void send(int signal) const noexcept;
  void reap() const noexcept;

 private:
  pid_t pid_ = -1;
  FileDescriptor output_;
  FileDescriptor errors_;
  std::optional<End> end_;
};

// From now on this process adopts the orphans among its descendants.
void adopt_orphans() noexcept;
// Kills all descendants of this process and waits for them. Returns how many there were.
int kill_descendants() noexcept;

}  // namespace tnt::run
