// The clock, and deadlines: they report their length as it was given.
#include "base/clock.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace tnt {
namespace {

TEST(Clock, DoesNotGoBack) {
  const std::int64_t first = now_ns();
  EXPECT_GT(first, 0);
  EXPECT_LE(first, now_ns());
}

TEST(Deadline, PassesInItsTime) {
  const std::int64_t before = now_ns();
  const Deadline soon(0.002);
  EXPECT_GE(soon.end_ns(), before + 2'000'000);
  while (!soon.passed()) {
  }
  EXPECT_GE(now_ns(), before + 2'000'000);
  EXPECT_FALSE(Deadline(1e9).passed());
  EXPECT_TRUE(Deadline(0).passed());
}

TEST(Deadline, SaysItsSecondsAsGiven) {
  for (const double seconds : {0.1, 0.3, 0.7, 1.0, 600.0}) EXPECT_EQ(Deadline(seconds).seconds(), seconds);
}

}  // namespace
}  // namespace tnt
