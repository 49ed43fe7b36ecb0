// The timeline of a whole job: one valid file with all ranks and each bucket's phases, replaced by the next job.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;
using nlohmann::json;

constexpr int ranks = 3;
constexpr int steps = 4;

// recorded: a timeline of step 2 alone, which each rank starts and stops itself.
void train(int rank, const std::string& recorded = "") {
  const Joined job;
  const tnt_tensor_t tensors[] = {{"a", 1000, TNT_FLOAT32}, {"b", 10, TNT_FLOAT32}};
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  options.fusion_threshold = 0;
  tnt_reducer_t reducer = nullptr;
  check(tnt_reducer_create(job.world, tensors, 2, &options, &reducer));
  std::vector<float> a(1000, 1.0F);
  std::vector<float> b(10, 1.0F);
  for (int step = 0; step < steps; ++step) {
    if (!recorded.empty() && step == 2) check(tnt_timeline_start(recorded.c_str()));
    const std::int64_t begin = tnt_clock_ns();
    check(tnt_reducer_ready(reducer, 1, b.data(), b.data(), 1.0, nullptr));
    check(tnt_reducer_ready(reducer, 0, a.data(), a.data(), 1.0, nullptr));
    check(tnt_reducer_finish(reducer, nullptr));
    check(tnt_trace_span("step", ("step " + std::to_string(step)).c_str(), begin, tnt_clock_ns()));
    if (!recorded.empty() && step == 2) check(tnt_timeline_stop());
  }
  check(tnt_reducer_destroy(reducer));
  EXPECT_EQ(rank, job.rank);
}

// How often each rank has a span of each name.
std::map<std::pair<int, std::string>, int> spans(const json& timeline) {
  std::map<std::pair<int, std::string>, int> seen;
  for (const json& event : timeline["traceEvents"]) ++seen[{event["pid"].get<int>(), event["name"].get<std::string>()}];
  return seen;
}

TEST(TraceProcess, AllRanksAreInOneFileOfTheLastJob) {
  const auto file = std::filesystem::temp_directory_path() / ("tnt-timeline-" + std::to_string(getpid()));
  const ProcessOptions options{.environment = {{"TNT_TIMELINE", file.string()}}};
  std::string last_job;
  for (int repeat = 0; repeat < 2; ++repeat) {
    ProcessJob job(
        ranks, [](int rank) { train(rank); }, options);
    for (const Ending& ending : job.wait()) ASSERT_EQ(ending.code, 0);
    const json timeline = json::parse(std::ifstream(file));
    EXPECT_EQ(timeline["job"], job.rendezvous());
    EXPECT_EQ(timeline.dump().find("token-of-"), std::string::npos) << "the token is a secret";

    auto seen = spans(timeline);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* bucket : {" 0", " 1"}) {
        for (const char* phase : {"ready", "pack", "wait", "reduce", "unpack"}) {
          EXPECT_EQ((seen[{rank, std::string(phase) + bucket}]), steps) << phase << bucket << " of rank " << rank;
        }
      }
      EXPECT_EQ((seen[{rank, "step 3"}]), 1);
      EXPECT_EQ((seen[{rank, "process_name"}]), 1);
    }
  }
  std::filesystem::remove(file);
}

TEST(TraceProcess, OnlyTheRecordedStepIsThere) {
  const auto file = std::filesystem::temp_directory_path() / ("tnt-recorded-" + std::to_string(getpid()));
  ProcessJob job(ranks, [&](int rank) { train(rank, file.string()); });
  for (const Ending& ending : job.wait()) ASSERT_EQ(ending.code, 0);
  auto seen = spans(json::parse(std::ifstream(file)));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* phase : {"ready 0", "pack 0", "wait 1", "reduce 1", "unpack 0"}) {
      EXPECT_EQ((seen[{rank, phase}]), 1) << phase << " of rank " << rank;
    }
    EXPECT_EQ((seen[{rank, "step 1"}]), 0);
    EXPECT_EQ((seen[{rank, "step 2"}]), 1);
  }
  std::filesystem::remove(file);
}

}  // namespace
