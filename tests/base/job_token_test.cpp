#include "base/job_token.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/error.hpp"

namespace tnt {
namespace {

class JobToken : public ::testing::Test {
 protected:
  JobToken() {
    std::string name = ::testing::TempDir() + "token-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~JobToken() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& text, mode_t mode) const {
    const std::string path = folder_ / "token";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string refused(const std::string& path) {
    try {
      return "read: " + read_token(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
      return error.what();
    }
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(JobToken, IsTheFirstWordOfAFile) {
  EXPECT_EQ(read_token(file("secret", 0600)), "secret");
  EXPECT_EQ(read_token(file("secret\nmore\n", 0400)), "secret");
  EXPECT_EQ(read_token(file("  secret \r\n", 0600)), "secret");
}

TEST_F(JobToken, OfAFileThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660, 0602}) {
    const std::string path = file("secret\n", mode);
    EXPECT_EQ(refused(path), "TNT_TOKEN_FILE=" + path + ": others can use this file: make it yours alone, with chmod 600");
  }
}

TEST_F(JobToken, OfNothingIsRefused) {
  const std::string path = file("\nsecret\n", 0600);
  EXPECT_EQ(refused(path), "TNT_TOKEN_FILE=" + path + ": its first line is empty");
  EXPECT_EQ(refused(path + "s"), "TNT_TOKEN_FILE=" + path + "s: cannot be read: No such file or directory");
}

TEST_F(JobToken, ComesFromStandardInputAndLeavesTheRest) {
  const int before = ::dup(STDIN_FILENO);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "secret\nrest", 11), 11);
  ::close(ends[1]);
  ::dup2(ends[0], STDIN_FILENO);
  EXPECT_EQ(read_token("-"), "secret");
  char rest[8] = {};
  EXPECT_EQ(::read(STDIN_FILENO, rest, sizeof rest), 4);
  EXPECT_STREQ(rest, "rest");
  ::dup2(before, STDIN_FILENO);
  ::close(before);
  ::close(ends[0]);
}

}  // namespace
}  // namespace tnt
