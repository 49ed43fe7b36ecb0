// The timeline of a whole job: one valid file with all ranks and each bucket's phases, replaced by the next job.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

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

// Of a rank whose process ends in the middle of a step.
std::atomic<bool> has_left{false};
tnt_reducer_t in_flight = nullptr;

// What is freed is used again, and changes, also without a sanitizer.
void overwrite_freed_memory() {
  for (std::size_t bytes = 16; bytes < 8192; bytes += 16) {
    for (int i = 0; i < 8; ++i) std::memset(std::malloc(bytes), 0xa5, bytes);  // NOLINT: the process ends
  }
}

// The last function of the process that runs at its exit: the library has left the job.
void end_the_bucket() {
  overwrite_freed_memory();
  has_left = true;
  tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
  for (int i = 0; i < 500 && stats.steps == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    (void)tnt_reducer_stats(in_flight, &stats);
  }
  _exit(stats.steps == 1 ? 0 : 3);
}

// The thread that reduces the bucket adds its phases to the timeline after the library has left.
TEST(TraceProcess, AProcessMayEndWithABucketInFlight) {
  const auto file = std::filesystem::temp_directory_path() / ("tnt-exit-" + std::to_string(getpid()));
  const ProcessOptions options{.environment = {{"TNT_TIMELINE", file.string()}, {"TNT_INTERNAL_OVERLAP", "on"}}};
  ProcessJob job(
      1,
      [](int) {
        (void)std::atexit(end_the_bucket);
        check(tnt_init(nullptr));
        tnt_comm_t world = nullptr;
        check(tnt_comm_world(&world));
        static auto& values = *new std::vector<float>(100'000);  // outlives the exit, as the program's own arrays do
        const tnt_tensor_t tensor{"a", values.size(), TNT_FLOAT32};
        check(tnt_reducer_create(world, &tensor, 1, nullptr, &in_flight));
        static std::atomic<bool> begun{false};
        const auto hook = [](tnt_packed_bucket_t*, void*) {
          begun = true;
          while (!has_left) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return 0;
        };
        check(tnt_reducer_set_hook(in_flight, hook, nullptr));
        check(tnt_reducer_ready(in_flight, 0, values.data(), values.data(), 1.0, nullptr));
        wait_for([] { return begun.load(); });
        std::exit(2);  // end_the_bucket has the last word
      },
      options);
  const Ending ending = job.wait().front();
  EXPECT_EQ(ending.code, 0) << "signal " << ending.signal;
  EXPECT_EQ((spans(json::parse(std::ifstream(file)))[{0, "ready 0"}]), 1) << "the timeline is written";
  std::filesystem::remove(file);
}

}  // namespace
