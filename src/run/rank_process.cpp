#include "run/rank_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "run/options.hpp"

namespace tnt::run {
namespace {

constexpr int cannot_start = 126;
constexpr int not_found = 127;
constexpr int tries_to_kill = 600;  // with 5 ms between them

std::array<FileDescriptor, 2> pipe_of() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Exit(cannot_start, fmt::format("tnt-run: no pipe for the output of a rank: {}{}\n", std::strerror(errno),
                                         errno == EMFILE ? " (`ulimit -n` sets the limit)" : ""));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// In the child. Only what is allowed between fork and exec.
void prepare(pid_t parent, int input, int output, int errors) {
  (void)::setsid();
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(1);  // it died before prctl
  if (input >= 0) (void)::dup2(input, STDIN_FILENO);
  (void)::dup2(output, STDOUT_FILENO);
  (void)::dup2(errors, STDERR_FILENO);
  (void)::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  (void)::sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The parent of a process, and whether it is still alive; 0 if there is no such process.
pid_t living_parent(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  if (!std::getline(file, text)) return 0;
  const std::size_t name_end = text.rfind(") ");
  char state = 'X';
  int parent = 0;
  if (name_end == std::string::npos || std::sscanf(text.c_str() + name_end + 2, "%c %d", &state, &parent) != 2) return 0;
  return state == 'Z' || state == 'X' ? 0 : parent;
}

std::set<pid_t> living_children() {
  std::set<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return children;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name(entry->d_name);
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (living_parent(name) == ::getpid()) children.insert(static_cast<pid_t>(std::atoi(name.c_str())));
  }
  return children;
}

}  // namespace

std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string End::text() const {
  return signal != 0 ? fmt::format("was killed by {}", signal_name(signal)) : fmt::format("exited with code {}", code);
}

std::vector<char*> argv_of(const std::vector<std::string>& command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  return words;
}

RankProcess::RankProcess(const std::vector<std::string>& command, const Variables& variables, bool keeps_input) {
  auto [output, output_end] = pipe_of();
  auto [errors, errors_end] = pipe_of();
  auto [failure, failure_end] = pipe_of();
  const FileDescriptor nothing(keeps_input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<char*> words = argv_of(command);
  for (const auto& [name, value] : variables)
    (void)::setenv(name.c_str(), value.c_str(), 1);  // this process needs none of them
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    prepare(parent, nothing.get(), output_end.get(), errors_end.get());
    ::execvp(words[0], words.data());
    const int error = errno;
    (void)::write(failure_end.get(), &error, sizeof(error));
    ::_exit(not_found);
  }
  if (pid_ < 0) throw Exit(cannot_start, fmt::format("tnt-run: cannot start a process: {}\n", std::strerror(errno)));
  failure_end = FileDescriptor();
  int error = 0;
  if (::read(failure.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))) {
    reap();
    throw Exit(error == ENOENT ? not_found : cannot_start,
               fmt::format("tnt-run: cannot start {}: {}\n", command[0], std::strerror(error)));
  }
  for (const FileDescriptor* end : {&output, &errors}) (void)::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  output_ = std::move(output);
  errors_ = std::move(errors);
}

bool RankProcess::has_ended() {
  if (end_) return true;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
  end_ = info.si_code == CLD_EXITED ? End{.code = info.si_status} : End{.signal = info.si_status};
  return true;
}

void RankProcess::send(int signal) const noexcept { (void)::kill(-pid_, signal); }

void RankProcess::reap() const noexcept { (void)::waitpid(pid_, nullptr, 0); }

void adopt_orphans() noexcept { (void)::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

int kill_descendants() noexcept {
  std::set<pid_t> killed;
  for (int i = 0; i < tries_to_kill; ++i) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::set<pid_t> children = living_children();  // their own become children when they have died
    if (children.empty()) break;
    for (const pid_t child : children) (void)::kill(child, SIGKILL);
    killed.insert(children.begin(), children.end());
    (void)::usleep(5000);
  }
  return static_cast<int>(killed.size());
}

}  // namespace tnt::run
