// The header is complete: what it declares is exported and used in header_use.c, and its version is the library's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tarantella/tarantella.h"

namespace {

std::string content(const char* file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::set<std::string> found(const std::string& text, const char* pattern) {
  std::set<std::string> result;
  const std::regex expression(pattern);
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
    result.insert((*match)[1]);
  }
  return result;
}

TEST(Header, DeclaresWhatIsExportedAndUsed) {
  const auto declared = found(content(TNT_HEADER), R"(TNT_EXPORT [^;(]*\b(tnt_\w+)\()");
  EXPECT_GT(declared.size(), 30U);
  for (const std::string& name : declared) EXPECT_NE(dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name;
  EXPECT_EQ(found(content(TNT_HEADER_USE), R"(\(function_t\)(tnt_\w+))"), declared);
}

TEST(Header, HasTheLibrarysVersion) {
  EXPECT_EQ(tnt_version(), std::to_string(TNT_VERSION_MAJOR) + "." + std::to_string(TNT_VERSION_MINOR) + "." +
                               std::to_string(TNT_VERSION_PATCH));
  EXPECT_EQ(tnt_version_number(), TNT_VERSION_NUMBER);
}

}  // namespace
