#include "base/host_cache.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace tnt {

std::string host_cache_file(const Environment& environment, std::string_view subject) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') return "";
  std::replace(host.begin(), host.end(), '/', '_');  // part of a file name
  // the XDG specification says to ignore relative paths
  const char* cache = environment("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/tarantella/{}-{}.json", cache, subject, host.data());
  const char* home = environment("HOME");
  if (home != nullptr && home[0] == '/') return fmt::format("{}/.cache/tarantella/{}-{}.json", home, subject, host.data());
  return "";
}

}  // namespace tnt
