// tnt_finalize on several ranks while handles are alive, or while a thread is inside a collective.
#include <gtest/gtest.h>

#include <atomic>

#include "support/asleep.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

std::string refused(tnt_status_t status) {
  EXPECT_EQ(status, TNT_INVALID_ARGUMENT) << tnt_last_error();
  return tnt_last_error();
}

TEST(HandlesProcess, FinalizeIsRefusedDuringACollectiveOfAnotherThread) {
  Shared<std::atomic<bool>> refusals_seen;
  run_processes(2, [&](int rank) {
    const Joined job;
    if (rank == 0) {
      const Asleep thread([&] { EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_SUCCESS) << tnt_last_error(); });
      const std::string expected =
          "tnt_finalize: another thread is inside a call with a comm handle or has it in a group, which must end first";
      EXPECT_EQ(refused(tnt_finalize()), expected);
      *refusals_seen = true;
    } else {
      wait_for([&] { return refusals_seen->load(); });
      EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_SUCCESS) << tnt_last_error();
    }
    int sum = 1;
    EXPECT_EQ(tnt_all_reduce(job.world, &sum, &sum, 1, TNT_INT32, TNT_SUM, nullptr, nullptr), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(sum, 2);
  });
}

// The threads of communicators and reducers end, and the other ranks learn that this one has left.
TEST(HandlesProcess, FinalizeEndsWhatWasNotDestroyed) {
  run_processes(3, [](int rank) {
    tnt_comm_t part = nullptr;
    tnt_comm_t world = nullptr;
    tnt_reducer_t reducer = nullptr;
    tnt_work_t work = nullptr;
    {
      const Joined job;
      world = job.world;
      check(tnt_comm_split(world, 0, 0, &part));
      const tnt_tensor_t tensor{"a", 10, TNT_FLOAT32};
      check(tnt_reducer_create(part, &tensor, 1, nullptr, &reducer));
      check(tnt_barrier(part, nullptr, &work));
      if (rank != 1) {
        EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_PEER_LOST) << "rank 1 has not left";
      }
    }
    EXPECT_NE(refused(tnt_comm_destroy(part)).find("comm is not a handle that exists"), std::string::npos);
    EXPECT_NE(refused(tnt_work_destroy(work)).find("work is not a handle that exists"), std::string::npos);
    EXPECT_NE(refused(tnt_reducer_destroy(reducer)).find("reducer is not a handle that exists"), std::string::npos);
    EXPECT_NE(refused(tnt_comm_abort(world, "late")).find("comm is not a handle that exists"), std::string::npos);
  });
}

}  // namespace
