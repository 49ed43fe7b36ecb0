#include "benchmarks/simulated/platform.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <simgrid/s4u/Host.hpp>

namespace tnt::bench {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Failure(fmt::format("--platform {}: {}", file, what), 2);
}

// SimGrid ends the process on many errors in a file. So another process tries first; its messages are long and go nowhere.
void try_to_load(const simgrid::s4u::Engine& engine, const std::string& file) {
  const pid_t child = fork();
  if (child < 0) refuse(file, fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    try {
      engine.load_platform(file);
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) refuse(file, "no platform file that SimGrid can read (docs/scaling.md has the format)");
}

double property(const simgrid::s4u::Host& host, const std::string& file, const char* name, double otherwise) {
  const char* text = host.get_property(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0))
    refuse(file, fmt::format("property {}=\"{}\": not a positive number", name, text));
  return value;
}

}  // namespace

Platform load_platform(const simgrid::s4u::Engine& engine, const std::string& file, int ranks) {
  const std::ifstream readable(file);
  if (!readable) refuse(file, std::strerror(errno));
  try_to_load(engine, file);
  engine.load_platform(file);
  Platform platform{.nodes = engine.get_all_hosts()};
  if (platform.nodes.empty()) refuse(file, "it has no host");
  // node-2 comes before node-10
  std::sort(platform.nodes.begin(), platform.nodes.end(), [](const auto* a, const auto* b) {
    const std::string& first = a->get_name();
    const std::string& second = b->get_name();
    return first.size() != second.size() ? first.size() < second.size() : first < second;
  });
  const simgrid::s4u::Host& first = *platform.nodes.front();
  platform.ranks_per_node = static_cast<int>(property(first, file, "ranks", 1));
  platform.memory_bytes_per_second = property(first, file, "memory_bandwidth", 0);
  if (static_cast<std::size_t>(ranks) > platform.max_ranks()) {
    refuse(file, fmt::format("{} ranks do not fit: it has {} nodes for {} ranks each, {} in all", ranks, platform.nodes.size(),
                             platform.ranks_per_node, platform.max_ranks()));
  }
  return platform;
}

}  // namespace tnt::bench
