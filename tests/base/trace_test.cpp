// The timeline file: valid JSON after each write, shared by the ranks of a job, replaced by the next job.
#include "base/trace.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "common/error.hpp"

namespace tnt {
namespace {

using nlohmann::json;

class TraceTest : public ::testing::Test {
 protected:
  ~TraceTest() override { std::filesystem::remove(file); }

  [[nodiscard]] json read() const { return json::parse(std::ifstream(file)); }
  [[nodiscard]] std::vector<json> spans() const {  // without the lines with names
    std::vector<json> result;
    const json timeline = read();
    for (const json& event : timeline["traceEvents"]) {
      if (event["ph"] != "M") result.push_back(event);
    }
    return result;
  }

  const std::string file = (std::filesystem::temp_directory_path() / ("tnt-trace-" + std::to_string(getpid()))).string();
};

TEST_F(TraceTest, WithoutAFileNothingIsWritten) {
  Trace trace("job", 0);
  trace.start("");
  EXPECT_FALSE(trace.enabled());
  trace.stop();
}

TEST_F(TraceTest, SpansInstantsAndBucketsAreKept) {
  Trace trace("job", 2);
  trace.start(file);
  trace.add({"step", "step 1", 1'000'000, 3'500'000, -1});
  trace.add({"gradients", "ready 4", 2'000'000, 2'000'000, 4, 65536});
  trace.stop();
  const auto events = spans();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["ph"], "X");
  EXPECT_EQ(events[0]["name"], "step 1");
  EXPECT_EQ(events[0]["pid"], 2);
  EXPECT_EQ(events[0]["ts"], 1000.0);
  EXPECT_EQ(events[0]["dur"], 2500.0);
  EXPECT_FALSE(events[0].contains("args"));
  EXPECT_EQ(events[1]["ph"], "i");
  EXPECT_EQ(events[1]["args"]["bucket"], 4);
  EXPECT_EQ(events[1]["args"]["bytes"], 65536);
  EXPECT_NE(events[0]["tid"], events[1]["tid"]);
}

TEST_F(TraceTest, RanksThatWriteAtOnceShareTheFile) {
  constexpr int ranks = 8;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([this, rank] {
      Trace trace("job", rank);
      trace.start(file);
      for (int i = 0; i < 50; ++i) trace.add({"step", "step", i * 10, i * 10 + 5, -1});
      trace.stop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<int, int> by_rank;
  for (const json& event : spans()) ++by_rank[event["pid"].get<int>()];
  EXPECT_EQ(by_rank.size(), 8U);
  for (const auto& [rank, events] : by_rank) EXPECT_EQ(events, 50) << rank;
}

TEST_F(TraceTest, AnotherJobsFileIsReplaced) {
  for (const char* job : {"first job, long", "job"}) {
    Trace trace(job, 0);
    trace.start(file);
    for (int i = 0; i < 100; ++i) trace.add({"step", "step", 0, 1, -1});
    trace.stop();
    EXPECT_EQ(read()["job"], job);
    EXPECT_EQ(spans().size(), 100U);
  }
}

TEST_F(TraceTest, WhatIsNoTimelineIsReplaced) {
  std::ofstream(file) << "something else entirely, longer than a head of the file may ever be";
  Trace trace("job", 0);
  trace.start(file);
  trace.stop();
  EXPECT_EQ(spans().size(), 0U);
}

TEST_F(TraceTest, EventsAreWrittenOnce) {
  Trace trace("job", 0);
  trace.start(file);
  trace.add({"step", "a", 0, 1, -1});
  trace.stop();
  trace.stop();
  EXPECT_EQ(spans().size(), 1U);
}

TEST_F(TraceTest, OnlyWhatHappensBetweenStartAndStopIsKept) {
  Trace trace("job", 0);
  trace.add({"step", "before", 0, 1, -1});
  for (const char* name : {"first", "second"}) {
    trace.start(file);
    EXPECT_TRUE(trace.enabled());
    trace.add({"step", name, 0, 1, -1});
    trace.stop();
    EXPECT_FALSE(trace.enabled());
    trace.add({"step", "after", 0, 1, -1});
  }
  const auto events = spans();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["name"], "first");
  EXPECT_EQ(events[1]["name"], "second");
}

TEST_F(TraceTest, OneTimelineAtATime) {
  Trace trace("job", 0);
  trace.start(file);
  try {
    trace.start("other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("for " + file + ": stop that one first"), std::string::npos) << error.what();
  }
}

TEST_F(TraceTest, NamesMayHoldAnything) {
  Trace trace("a \"job\"\n", 0);
  trace.start(file);
  trace.add({"tr\"ack", "line\nbreak \\ quote\"", 0, 1, -1});
  trace.add({"track", "no UTF-8: \xff\xfe", 1, 2, -1});
  trace.stop();
  EXPECT_EQ(spans().size(), 2U);
  EXPECT_EQ(spans()[0]["name"], "line\nbreak \\ quote\"");
}

TEST_F(TraceTest, AFileThatCannotBeOpenedIsNamed) {
  Trace trace("job", 0);
  trace.start("/nowhere/to/be/found.json");
  try {
    trace.stop();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_NE(std::string(error.what()).find("/nowhere/to/be/found.json"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tnt
