#include "base/job_token.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/file_descriptor.hpp"
#include "base/log.hpp"
#include "base/read_text.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::size_t max_line = 4096;
constexpr std::size_t unlikely_length = 16;  // a shorter token may stand on a command line by chance

// A byte at a time: what follows the line is for the program.
std::string read_first_line(int descriptor, const std::string& path) {
  std::string line;
  while (line.size() < max_line) {
    char byte = 0;
    const ssize_t got = ::read(descriptor, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(TNT_INVALID_ARGUMENT, "TNT_TOKEN_FILE={}: cannot be read: {}", path, std::strerror(errno));
    if (got == 0 || byte == '\n') break;
    line += byte;
  }
  const auto begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) fail(TNT_INVALID_ARGUMENT, "TNT_TOKEN_FILE={}: its first line is empty", path);
  return line.substr(begin, line.find_first_of(" \t\r", begin) - begin);
}

std::string program_name(const std::filesystem::path& process) {
  const std::string name = read_text(process / "comm");
  return name.substr(0, name.find('\n'));
}

}  // namespace

std::string read_token(const std::string& path) {
  if (path == "-") return read_first_line(STDIN_FILENO, path);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TOKEN_FILE={}: cannot be read: {}", path, std::strerror(errno));
  }
  constexpr mode_t others = S_IRWXG | S_IRWXO;
  if (S_ISREG(about.st_mode) && ((about.st_mode & others) != 0 || (about.st_uid != ::geteuid() && about.st_uid != 0))) {
    fail(TNT_INVALID_ARGUMENT, "TNT_TOKEN_FILE={}: others can use this file: make it yours alone, with chmod 600", path);
  }
  return read_first_line(file.get(), path);
}

void warn_of_visible_token(const std::string& token) {
  const std::string assignment = "TNT_TOKEN=" + token;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (!std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return c >= '0' && c <= '9'; })) continue;
    const std::string words = read_text(process.path() / "cmdline");
    if (words.find(token.size() < unlikely_length ? assignment : token) == std::string::npos) continue;
    log(LogLevel::warning,
        "the job's token is on the command line of process {} ({}), which all users of this host can read: give it by "
        "TNT_TOKEN_FILE, a file or - for standard input (docs/clusters.md)",
        pid, program_name(process.path()));
    return;
  }
}

}  // namespace tnt
