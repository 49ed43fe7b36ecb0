#include "benchmarks/environment.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "benchmarks/buffers.hpp"

namespace tnt::bench {
namespace {

// The value of the first line of /proc/<file> that begins with key, such as "model name : AMD EPYC".
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

std::string backend_names(const Backends& backends) {
  std::string names;
  for (const auto& backend : backends.tarantella) names += (names.empty() ? "" : ",") + backend->name();
  return names;
}

// The source of the shared-memory tuning, by the same rule as in the library (src/bootstrap/node.cpp).
std::string tuning_in_use() {
  if (const char* named = std::getenv("TNT_INTERNAL_TUNING"); named != nullptr && *named != '\0') return named;
  const std::string cache = tnt_tuning_file();
  std::error_code ignored;  // the library does not use an inaccessible file either
  return !cache.empty() && std::filesystem::exists(cache, ignored) ? cache : "built-in";
}

std::string reference_version(const Backends& backends, const std::string& name) {
  return backends.reference && backends.reference->name() == name ? backends.reference->version() : "not measured";
}

}  // namespace

std::size_t available_memory() {
  return std::strtoull(proc_value("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10) * 1024;
}

std::string beside_this_program(const std::string& relative) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / relative).string();
}

Header describe_machine(const Options& options, const Team& team, const Backends& backends) {
  Header header;
  header.version = tnt_version();
  utsname system{};
  uname(&system);
  const std::string clock = proc_value("/proc/cpuinfo", "cpu MHz");
  header.facts = {{"backends", backend_names(backends)},
                  {"ranks", std::to_string(team.ranks())},
                  {"mpi", reference_version(backends, "mpi")},
                  {"gloo", reference_version(backends, "gloo")},
                  {"nccl", "not available"},
                  {"cuda", "not available"},
                  {"cpu", proc_value("/proc/cpuinfo", "model name")},
                  {"cores", std::to_string(usable_cores())},
                  {"clock", clock.empty() ? "not known" : fmt::format("{} MHz", clock)},
                  {"last level cache", fmt::format("{} MiB", last_level_cache_bytes() >> 20)},
                  {"kernel", system.release},
                  {"tuning", tuning_in_use()},
                  {"cache", name(options.cache)}};
  if (backends.bytes_per_second) {
    header.facts.emplace_back("memory limit",
                              fmt::format("{:.1f} GB/s read and written by all ranks", *backends.bytes_per_second * 1e-9));
  }
  return header;
}

}  // namespace tnt::bench
