#include "run/hand_over.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "run/rank_process.hpp"

namespace tnt::run {
namespace {

constexpr std::array<std::string_view, 5> passed_prefixes{"TNT_", "OMP_", "NCCL_", "CUDA_", "UCX_"};
constexpr std::array<std::string_view, 2> passed_names{"PATH", "LD_LIBRARY_PATH"};

std::string host_list(const std::vector<Host>& hosts, bool with_slots) {
  std::string list;
  for (const Host& host : hosts) {
    if (!list.empty()) list += ',';
    list += with_slots ? fmt::format("{}:{}", host.name, host.slots) : host.name;
  }
  return list;
}

std::vector<std::string> srun_command(const Options& options) {
  std::vector<std::string> words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", std::to_string(options.ranks)};
  if (!options.hosts.empty()) words.insert(words.end(), {"-w", host_list(options.hosts, false)});
  if (options.prefix) words.emplace_back("--label");
  return words;
}

std::vector<std::string> mpirun_command(const Options& options, const std::vector<std::string>& environment) {
  std::vector<std::string> words;
  std::istringstream given(options.mpirun.empty() ? "mpirun" : options.mpirun);
  for (std::string word; given >> word;) words.push_back(word);
  if (words.empty()) throw Exit(2, "tnt-run: --mpirun names no program\n");
  if (!options.hosts.empty()) words.insert(words.end(), {"--host", host_list(options.hosts, true)});
  words.insert(words.end(), {"-n", std::to_string(options.ranks)});
  words.insert(words.end(), {"--map-by", "slot", "--bind-to", "none"});
  if (options.prefix) words.emplace_back("--tag-output");
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  for (const std::string& name : environment) words.insert(words.end(), {"-x", name});
  return words;
}

}  // namespace

std::vector<std::string> passed_on() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool begins = std::ranges::any_of(passed_prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (begins || std::ranges::find(passed_names, name) != passed_names.end()) names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> starter_command(const Options& options, const std::vector<std::string>& environment) {
  std::vector<std::string> words = options.srun ? srun_command(options) : mpirun_command(options, environment);
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

void become(const std::vector<std::string>& command) {
  const std::vector<char*> words = argv_of(command);
  execvp(words[0], words.data());
  throw Exit(126, fmt::format("tnt-run: cannot start {}, which starts ranks on several hosts: {}\n", command[0],
                              std::strerror(errno)));
}

std::string quoted(const std::vector<std::string>& command) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string line;
  for (const std::string& word : command) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char letter : word) line += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    line += '\'';
  }
  return line;
}

}  // namespace tnt::run
