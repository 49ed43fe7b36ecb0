// Handles that do not exist any more: an error for each function, no crash; and handles that another thread uses.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/alone.hpp"
#include "support/asleep.hpp"

namespace {

using tnt::testing::expect_error;

float values[4] = {1, 2, 3, 4};
const tnt_tensor_t tensors[] = {{"a", 4, TNT_FLOAT32}, {"b", 4, TNT_FLOAT32}};

// One handle of each kind.
struct Handles {
  tnt_comm_t comm = nullptr;
  tnt_work_t work = nullptr;
  tnt_reducer_t reducer = nullptr;
};

class HandlesTest : public tnt::testing::Alone {
 protected:
  [[nodiscard]] Handles make() const {
    Handles made;
    EXPECT_EQ(tnt_comm_split(world, 0, 0, &made.comm), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_barrier(world, nullptr, &made.work), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_reducer_create(world, tensors, 2, nullptr, &made.reducer), TNT_SUCCESS) << tnt_last_error();
    return made;
  }
};

struct Use {
  const char* name;
  std::function<tnt_status_t(const Handles&)> call;
};

int number;
std::size_t size;
const char* text;
tnt_comm_t comm_made;
tnt_work_t work_made;
tnt_reducer_t reducer_made;
const int members[] = {0};

const Use uses[] = {
    {"comm_split", [](const Handles& of) { return tnt_comm_split(of.comm, 0, 0, &comm_made); }},
    {"comm_create_group", [](const Handles& of) { return tnt_comm_create_group(of.comm, members, 1, 0, &comm_made); }},
    {"comm_grow", [](const Handles& of) { return tnt_comm_grow(of.comm, nullptr, 2, -1, &comm_made); }},
    {"comm_rank", [](const Handles& of) { return tnt_comm_rank(of.comm, &number); }},
    {"comm_size", [](const Handles& of) { return tnt_comm_size(of.comm, &number); }},
    {"comm_local_rank", [](const Handles& of) { return tnt_comm_local_rank(of.comm, &number); }},
    {"comm_local_size", [](const Handles& of) { return tnt_comm_local_size(of.comm, &number); }},
    {"comm_transport", [](const Handles& of) { return tnt_comm_transport(of.comm, &text); }},
    {"comm_abort", [](const Handles& of) { return tnt_comm_abort(of.comm, "reason"); }},
    {"comm_connect_device", [](const Handles& of) { return tnt_comm_connect_device(of.comm, 0); }},
    {"comm_check", [](const Handles& of) { return tnt_comm_check(of.comm); }},
    {"comm_destroy", [](const Handles& of) { return tnt_comm_destroy(of.comm); }},
    {"all_reduce",
     [](const Handles& of) { return tnt_all_reduce(of.comm, values, values, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); }},
    {"start_all_reduce",
     [](const Handles& of) { return tnt_all_reduce(of.comm, values, values, 4, TNT_FLOAT32, TNT_SUM, nullptr, &work_made); }},
    {"reduce_scatter",
     [](const Handles& of) { return tnt_reduce_scatter(of.comm, values, values, 4, TNT_FLOAT32, TNT_SUM, nullptr, nullptr); }},
    {"all_gather", [](const Handles& of) { return tnt_all_gather(of.comm, values, values, 4, TNT_FLOAT32, nullptr, nullptr); }},
    {"broadcast",
     [](const Handles& of) { return tnt_broadcast(of.comm, values, values, 4, TNT_FLOAT32, 0, nullptr, nullptr); }},
    {"all_to_all", [](const Handles& of) { return tnt_all_to_all(of.comm, values, values, 4, TNT_FLOAT32, nullptr, nullptr); }},
    {"barrier", [](const Handles& of) { return tnt_barrier(of.comm, nullptr, nullptr); }},
    {"send", [](const Handles& of) { return tnt_send(of.comm, values, 4, TNT_FLOAT32, 0, nullptr, nullptr); }},
    {"recv", [](const Handles& of) { return tnt_recv(of.comm, values, 4, TNT_FLOAT32, 0, nullptr, nullptr); }},
    {"reducer_create", [](const Handles& of) { return tnt_reducer_create(of.comm, tensors, 2, nullptr, &reducer_made); }},
    {"work_wait_any",
     [](const Handles& of) {
       std::size_t index = 0;
       return tnt_work_wait_any(&of.work, 1, -1, &index);
     }},
    {"work_wait", [](const Handles& of) { return tnt_work_wait(of.work, -1); }},
    {"work_test", [](const Handles& of) { return tnt_work_test(of.work, &number); }},
    {"work_destroy", [](const Handles& of) { return tnt_work_destroy(of.work); }},
    {"reducer_bucket_count", [](const Handles& of) { return tnt_reducer_bucket_count(of.reducer, &size); }},
    {"reducer_fusion_threshold", [](const Handles& of) { return tnt_reducer_fusion_threshold(of.reducer, &size); }},
    {"reducer_bucket",
     [](const Handles& of) {
       tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
       return tnt_reducer_bucket(of.reducer, 0, &bucket);
     }},
    {"reducer_set_hook", [](const Handles& of) { return tnt_reducer_set_hook(of.reducer, nullptr, nullptr); }},
    {"reducer_ready", [](const Handles& of) { return tnt_reducer_ready(of.reducer, 0, values, values, 1.0, nullptr); }},
    {"reducer_ready_many",
     [](const Handles& of) { return tnt_reducer_ready_many(of.reducer, nullptr, nullptr, nullptr, nullptr, 0, nullptr); }},
    {"reducer_wait_bucket", [](const Handles& of) { return tnt_reducer_wait_bucket(of.reducer, 0, nullptr); }},
    {"reducer_finish", [](const Handles& of) { return tnt_reducer_finish(of.reducer, nullptr); }},
    {"reducer_check", [](const Handles& of) { return tnt_reducer_check(of.reducer); }},
    {"reducer_gradient_buffer",
     [](const Handles& of) {
       void* buffer = nullptr;
       return tnt_reducer_gradient_buffer(of.reducer, 0, &buffer);
     }},
    {"reducer_statistics",
     [](const Handles& of) {
       const tnt_statistics_t* statistics = nullptr;
       return tnt_reducer_statistics(of.reducer, &statistics);
     }},
    {"reducer_tensor_steps",
     [](const Handles& of) {
       std::uint64_t steps = 0;
       return tnt_reducer_tensor_steps(of.reducer, 0, &steps);
     }},
    {"reducer_stats",
     [](const Handles& of) {
       tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
       return tnt_reducer_stats(of.reducer, &stats);
     }},
    {"reducer_destroy", [](const Handles& of) { return tnt_reducer_destroy(of.reducer); }},
};

void expect_all_refused(const Handles& of) {
  for (const Use& use : uses) {
    SCOPED_TRACE(use.name);
    expect_error(use.call(of), TNT_INVALID_ARGUMENT, "is not a handle that exists: tnt_");
  }
}

TEST_F(HandlesTest, AreRefusedOnceDestroyed) {
  const Handles gone = make();
  EXPECT_EQ(tnt_comm_destroy(gone.comm), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_destroy(gone.work), TNT_SUCCESS);
  EXPECT_EQ(tnt_reducer_destroy(gone.reducer), TNT_SUCCESS);
  expect_all_refused(gone);
  const Handles others = make();  // in the same places
  expect_all_refused(gone);
  EXPECT_EQ(tnt_comm_destroy(others.comm), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_destroy(others.work), TNT_SUCCESS);
  EXPECT_EQ(tnt_reducer_destroy(others.reducer), TNT_SUCCESS);
}

TEST_F(HandlesTest, AreRefusedAfterFinalize) {
  const Handles gone = make();
  ASSERT_EQ(tnt_finalize(), TNT_SUCCESS) << tnt_last_error();
  expect_all_refused(gone);
  Handles of_world = gone;
  of_world.comm = world;
  expect_all_refused(of_world);
  ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS) << tnt_last_error();
  tnt_comm_t again = nullptr;
  ASSERT_EQ(tnt_comm_world(&again), TNT_SUCCESS);
  EXPECT_NE(again, world);
  expect_all_refused(of_world);
}

TEST_F(HandlesTest, OfAnotherKindOrFromNowhereAreRefused) {
  const Handles made = make();
  const Handles mixed{.comm = reinterpret_cast<tnt_comm_t>(made.work),
                      .work = reinterpret_cast<tnt_work_t>(made.reducer),
                      .reducer = reinterpret_cast<tnt_reducer_t>(made.comm)};
  expect_all_refused(mixed);
  const Handles from_nowhere{.comm = reinterpret_cast<tnt_comm_t>(&number),
                             .work = reinterpret_cast<tnt_work_t>(UINTPTR_MAX),
                             .reducer = reinterpret_cast<tnt_reducer_t>(1)};
  expect_all_refused(from_nowhere);
}

TEST_F(HandlesTest, AreNewEachTimeInAnyNumber) {
  std::set<tnt_work_t> seen;
  for (int round = 0; round < 3; ++round) {
    std::vector<tnt_work_t> works(1000);
    for (tnt_work_t& work : works) {
      ASSERT_EQ(tnt_barrier(world, nullptr, &work), TNT_SUCCESS);
      EXPECT_TRUE(seen.insert(work).second);
    }
    for (tnt_work_t work : works) EXPECT_EQ(tnt_work_wait(work, -1), TNT_SUCCESS) << tnt_last_error();
    for (tnt_work_t work : works) EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
  }
}

// A thread that waits for a bucket whose second gradient has not come.
TEST_F(HandlesTest, ThatAnotherThreadUsesAreKept) {
  const Handles made = make();
  ASSERT_EQ(tnt_reducer_ready(made.reducer, 1, values, nullptr, 1.0, nullptr), TNT_SUCCESS) << tnt_last_error();
  {
    const tnt::testing::Asleep thread(
        [&] { EXPECT_EQ(tnt_reducer_wait_bucket(made.reducer, 0, nullptr), TNT_SUCCESS) << tnt_last_error(); });
    const std::string inside = "another thread is inside a call with ";
    expect_error(tnt_reducer_destroy(made.reducer), TNT_INVALID_ARGUMENT, "reducer is in use: " + inside + "it");
    expect_error(tnt_finalize(), TNT_INVALID_ARGUMENT, "tnt_finalize: " + inside + "a reducer handle");
    EXPECT_EQ(tnt_comm_size(made.comm, &number), TNT_SUCCESS) << "nothing was ended: " << tnt_last_error();
    EXPECT_EQ(tnt_work_test(made.work, &number), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_reducer_ready(made.reducer, 0, values, nullptr, 1.0, nullptr), TNT_SUCCESS) << tnt_last_error();
  }
  EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << tnt_last_error();
}

}  // namespace
