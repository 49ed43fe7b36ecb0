// Log lines: format, levels, and which ranks write.
#include "base/log.hpp"

#include <gtest/gtest.h>

namespace tnt {
namespace {

std::string logged(const Settings& settings, LogLevel level) {
  configure_log(settings);
  ::testing::internal::CaptureStderr();
  log(level, "bucket {}", 7);
  std::string text = ::testing::internal::GetCapturedStderr();
  configure_log({});
  return text;
}

Settings of_rank(int rank, LogLevel level = LogLevel::warning, bool all = false) {
  Settings settings;
  settings.rank = rank;
  settings.log_level = level;
  settings.log_on_all_ranks = all;
  return settings;
}

TEST(Log, LinesNameRankAndLevel) {
  EXPECT_EQ(logged(of_rank(0, LogLevel::debug), LogLevel::debug), "tarantella[0]: debug: bucket 7\n");
  EXPECT_EQ(logged(of_rank(0, LogLevel::info), LogLevel::info), "tarantella[0]: info: bucket 7\n");
  EXPECT_EQ(logged(of_rank(3, LogLevel::warning, true), LogLevel::warning), "tarantella[3]: warning: bucket 7\n");
  EXPECT_EQ(logged(of_rank(0), LogLevel::error), "tarantella[0]: error: bucket 7\n");
}

TEST(Log, BelowTheLevelNothingIsSaid) {
  EXPECT_EQ(logged(of_rank(0, LogLevel::error), LogLevel::warning), "");
  EXPECT_EQ(logged(of_rank(0), LogLevel::info), "");
}

TEST(Log, ASinkTakesTheLines) {
  std::string taken;
  set_log_sink([&](LogLevel level, int rank, const std::string& text) {
    taken += fmt::format("{} {} {};", static_cast<int>(level), rank, text);
  });
  EXPECT_EQ(logged(of_rank(3, LogLevel::info, true), LogLevel::info), "");
  EXPECT_EQ(logged(of_rank(3, LogLevel::info, true), LogLevel::debug), "");
  EXPECT_EQ(taken, "1 3 bucket 7;");
  set_log_sink({});
  EXPECT_EQ(logged(of_rank(0), LogLevel::error), "tarantella[0]: error: bucket 7\n");
}

TEST(Log, OtherRanksSpeakOnlyWhenAsked) { EXPECT_EQ(logged(of_rank(1), LogLevel::error), ""); }

}  // namespace
}  // namespace tnt
