// Where cached files of a host are stored, depending on the environment.
#include "base/host_cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <map>

namespace tnt {
namespace {

std::string file_for(const std::map<std::string, std::string>& variables) {
  return host_cache_file(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      "tuning");
}

TEST(HostCache, IsWhereTheEnvironmentSays) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const std::string name = std::string("tarantella/tuning-") + host.data() + ".json";
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", "/cache"}, {"HOME", "/home/me"}}), "/cache/" + name);
  EXPECT_EQ(file_for({{"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({{"XDG_CACHE_HOME", ""}, {"HOME", "/home/me"}}), "/home/me/.cache/" + name);
  EXPECT_EQ(file_for({}), "");
  EXPECT_EQ(file_for({{"HOME", "here"}}), "");
}

}  // namespace
}  // namespace tnt
