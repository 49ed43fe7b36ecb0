// pthread_cancel of a thread inside a call: the call ends as if there had been none, and the thread ends afterwards.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

constexpr std::chrono::milliseconds until_asleep{150};  // longer than a waiting rank spins, and it has looked at its peers

struct Waiting {
  tnt_comm_t comm = nullptr;
  tnt_work_t work = nullptr;  // waited for, if there is one; else a barrier
  tnt_status_t status = TNT_SUCCESS;
};

void* wait_in_call(void* argument) {
  auto& waiting = *static_cast<Waiting*>(argument);
  waiting.status = waiting.work != nullptr ? tnt_work_wait(waiting.work, -1) : tnt_barrier(waiting.comm, nullptr, nullptr);
  pthread_testcancel();
  return nullptr;
}

// Cancels a thread that waits in the call until rank 0 arrives.
void cancel_one_that_waits(Waiting& waiting, int to_rank_0) {
  waiting.status = TNT_UNSUPPORTED;
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, nullptr, wait_in_call, &waiting), 0);
  std::this_thread::sleep_for(until_asleep);
  ASSERT_EQ(pthread_cancel(thread), 0);
  std::this_thread::sleep_for(until_asleep);
  ASSERT_EQ(write(to_rank_0, "x", 1), 1);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(waiting.status, TNT_SUCCESS);
}

TEST(Cancel, WaitsForTheEndOfTheCall) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  run_processes(2, [&](int rank) {
    const Joined job;
    Waiting waiting{.comm = job.world};
    for (const bool with_work : {false, true}) {
      if (rank == 0) {
        char byte = 0;
        ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
        check(tnt_barrier(job.world, nullptr, nullptr));
        continue;
      }
      if (with_work) check(tnt_barrier(job.world, nullptr, &waiting.work));
      cancel_one_that_waits(waiting, pipe_ends[1]);
    }
    check(tnt_work_destroy(waiting.work));
    check(tnt_barrier(job.world, nullptr, nullptr));  // the ranks are still in step
  });
}

}  // namespace
