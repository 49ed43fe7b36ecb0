// The library's life in one process: joining, leaving, which calls work before and after, and each thread's own last error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/alone.hpp"

namespace {

using tnt::testing::expect_error;

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override { tnt::testing::clear_environment(); }
  void TearDown() override {
    EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
    tnt::testing::clear_environment();
  }
};

TEST_F(RuntimeTest, SomeFunctionsNeedNoInit) {
  EXPECT_STREQ(tnt_status_name(TNT_PEER_LOST), "TNT_PEER_LOST");
  EXPECT_EQ(tnt_dtype_size(TNT_BFLOAT16), 2U);
  EXPECT_EQ(tnt_dtype_size(static_cast<tnt_dtype_t>(99)), 0U);
  const std::int64_t before = tnt_clock_ns();
  EXPECT_LE(before, tnt_clock_ns());
  tnt_unique_id_t id;
  EXPECT_EQ(tnt_unique_id(nullptr, &id), TNT_SUCCESS);
  EXPECT_STREQ(tnt_last_error(), "");
}

TEST_F(RuntimeTest, WithoutInitThereIsNoWorld) {
  tnt_comm_t world = nullptr;
  expect_error(tnt_comm_world(&world), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  expect_error(tnt_comm_grow(nullptr, nullptr, 2, 1, &world), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  expect_error(tnt_trace_span("track", "name", 0, 1), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  expect_error(tnt_timeline_start("timeline"), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  expect_error(tnt_timeline_stop(), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  expect_error(tnt_progress(1, 2.0), TNT_INVALID_ARGUMENT, "tnt_init has not been called");
}

TEST_F(RuntimeTest, ACallbackTakesTheLog) {
  struct Line {
    tnt_log_level_t level;
    int rank;
    std::string message;
  };
  std::vector<Line> lines;
  const auto take = [](tnt_log_level_t level, int rank, const char* message, void* user_data) {
    static_cast<std::vector<Line>*>(user_data)->push_back({level, rank, message});
  };
  const auto make_reducer = [] {
    tnt_comm_t world = nullptr;
    ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
    const tnt_tensor_t tensor{"kernel", 4, TNT_FLOAT32};
    tnt_reducer_t reducer = nullptr;
    ASSERT_EQ(tnt_reducer_create(world, &tensor, 1, nullptr, &reducer), TNT_SUCCESS);
    ASSERT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
  };
  setenv("TNT_LOG_LEVEL", "info", 1);
  ASSERT_EQ(tnt_set_log_callback(take, &lines), TNT_SUCCESS);
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS);
  ::testing::internal::CaptureStderr();
  make_reducer();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().level, TNT_LOG_INFO);
  EXPECT_EQ(lines.back().rank, 0);
  EXPECT_NE(lines.back().message.find("kernel"), std::string::npos) << lines.back().message;
  const std::size_t taken = lines.size();
  ASSERT_EQ(tnt_set_log_callback(nullptr, nullptr), TNT_SUCCESS);
  ::testing::internal::CaptureStderr();
  make_reducer();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("tarantella[0]: info: "), std::string::npos);
  EXPECT_EQ(lines.size(), taken);
}

TEST_F(RuntimeTest, AProcessAloneIsAJob) {
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS);
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS) << "a second call does nothing";
  tnt_comm_t world = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  int number = -1;
  EXPECT_EQ(tnt_comm_rank(world, &number), TNT_SUCCESS);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(tnt_comm_size(world, &number), TNT_SUCCESS);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(tnt_comm_local_rank(world, &number), TNT_SUCCESS);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(tnt_comm_local_size(world, &number), TNT_SUCCESS);
  EXPECT_EQ(number, 1);
  const char* transport = nullptr;
  EXPECT_EQ(tnt_comm_transport(world, &transport), TNT_SUCCESS);
  EXPECT_STREQ(transport, "local");
  EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_world(&world), TNT_INVALID_ARGUMENT);
  EXPECT_EQ(tnt_init(nullptr), TNT_SUCCESS) << "and again";
}

TEST_F(RuntimeTest, OptionsAreChecked) {
  tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
  options.size = 8;
  expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "options->size is 8");
  options = TNT_INIT_OPTIONS_INITIALIZER;
  options.rank = 2;
  options.ranks = 2;
  expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "rank 2 of 2 ranks is invalid");
  options.rank = 1;
  expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "2 ranks need a rendezvous and a token");
  options.rendezvous = "name";
  options.token = "";
  expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "2 ranks need a rendezvous and a token");
  for (const double seconds : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    options = TNT_INIT_OPTIONS_INITIALIZER;
    options.join_timeout = seconds;
    expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "join_timeout");
  }
  options = TNT_INIT_OPTIONS_INITIALIZER;
  options.ranks = 9999;
  options.rendezvous = options.token = "name";
  expect_error(tnt_init(&options), TNT_UNSUPPORTED,
               "9999 ranks on one node: its shared memory takes 512 at most");  // does not wait
  options = TNT_INIT_OPTIONS_INITIALIZER;
  EXPECT_EQ(tnt_init(&options), TNT_SUCCESS);
}

TEST_F(RuntimeTest, TheEnvironmentIsChecked) {
  setenv("TNT_SIZE", "many", 1);
  expect_error(tnt_init(nullptr), TNT_INVALID_ARGUMENT, "TNT_SIZE=many");
  setenv("TNT_SIZE", "2", 1);
  expect_error(tnt_init(nullptr), TNT_INVALID_ARGUMENT, "tarantella -n 2");
}

TEST_F(RuntimeTest, AProgramThatARankHasStartedIsNoRank) {
  setenv("TNT_INTERNAL_JOINED", "3 1", 1);
  const std::string begin = "process " + std::to_string(getpid()) + " was started by rank 3 (process 1) and is no rank itself";
  expect_error(tnt_init(nullptr), TNT_UNSUPPORTED, begin.c_str());
  for (const std::string& own : {"3 " + std::to_string(getpid()), std::string("3"), std::string()}) {
    setenv("TNT_INTERNAL_JOINED", own.c_str(), 1);
    EXPECT_EQ(tnt_init(nullptr), TNT_SUCCESS) << own;
    EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
  }
}

TEST_F(RuntimeTest, OptionsStandAboveTheEnvironmentsPlace) {
  setenv("TNT_SIZE", "many", 1);
  setenv("TNT_RANK", "7", 1);
  const tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
  EXPECT_EQ(tnt_init(&options), TNT_SUCCESS) << tnt_last_error();
  setenv("TNT_TIMEOUT", "never", 1);
  EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
  expect_error(tnt_init(&options), TNT_INVALID_ARGUMENT, "TNT_TIMEOUT=never");  // the other fields count
}

TEST_F(RuntimeTest, ATimelineThatCannotBeWrittenIsNamed) {
  setenv("TNT_TIMELINE", "/nowhere/to/be/found.json", 1);
  expect_error(tnt_init(nullptr), TNT_SYSTEM, "/nowhere/to/be/found.json");
  std::string folder = testing::TempDir() + "timelineXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/trace.json";
  setenv("TNT_TIMELINE", file.c_str(), 1);
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS);
  std::filesystem::remove_all(folder);
  expect_error(tnt_finalize(), TNT_SYSTEM, file.c_str());
  tnt_comm_t world = nullptr;
  EXPECT_EQ(tnt_comm_world(&world), TNT_INVALID_ARGUMENT) << "it has ended all the same";
}

TEST_F(RuntimeTest, EveryThreadHasItsOwnLastError) {
  expect_error(tnt_comm_rank(nullptr, nullptr), TNT_INVALID_ARGUMENT, "comm is NULL");
  const std::string mine = tnt_last_error();
  std::thread other([] {
    EXPECT_STREQ(tnt_last_error(), "");
    expect_error(tnt_work_wait(nullptr, 0), TNT_INVALID_ARGUMENT, "work is NULL");
  });
  other.join();
  EXPECT_EQ(tnt_last_error(), mine);
  EXPECT_EQ(tnt_init(nullptr), TNT_SUCCESS);
  EXPECT_EQ(tnt_last_error(), mine) << "success says nothing";
}

TEST_F(RuntimeTest, AnAbortEndsTheJobOfOneToo) {
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS);
  tnt_comm_t world = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  tnt_comm_t part = nullptr;
  ASSERT_EQ(tnt_comm_split(world, 3, 0, &part), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_check(world), TNT_SUCCESS);
  ASSERT_EQ(tnt_comm_abort(world, "the loss is not a number"), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_check(world), TNT_ABORTED);
  ASSERT_EQ(tnt_comm_abort(world, "too late"), TNT_SUCCESS);
  for (tnt_comm_t comm : {world, part}) {
    EXPECT_EQ(tnt_barrier(comm, nullptr, nullptr), TNT_ABORTED);
    EXPECT_STREQ(tnt_last_error(), "rank 0: the loss is not a number");
  }
  EXPECT_EQ(tnt_comm_destroy(part), TNT_SUCCESS);
}

}  // namespace
