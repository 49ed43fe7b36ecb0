#include "base/read_text.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tnt {
namespace {

TEST(ReadText, ReadsAllBytes) {
  EXPECT_NE(read_text("/proc/self/cmdline").find('\0'), std::string::npos);
  EXPECT_EQ(read_text("/proc/self/stat").rfind(std::to_string(::getpid()) + " (", 0), 0U);
}

TEST(ReadText, WhatCannotBeReadIsEmpty) {
  EXPECT_EQ(read_text("/nosuch/file"), "");
  EXPECT_EQ(read_text("/proc"), "");  // it can be opened, and reading fails, as for a process that has ended
}

}  // namespace
}  // namespace tnt
