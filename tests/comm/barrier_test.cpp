// The barrier used by all collectives: no rank leaves it before all have entered, and each sees the others' earlier writes.
#include "comm/shm/barrier.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;

class BarrierTest : public ::testing::TestWithParam<int> {};

TEST_P(BarrierTest, NobodyIsThroughBeforeAllAreThere) {
  std::atomic<int> arrived{0};
  testing::run_threads(GetParam(), [&](Communicator& comm) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      barrier(comm, call());
      EXPECT_GE(arrived, round * comm.size());
    }
  });
}

// Plain variables, so that a thread sanitizer checks the ordering.
TEST_P(BarrierTest, WhatWasWrittenBeforeIsSeenAfter) {
  std::vector<int> values(static_cast<std::size_t>(GetParam()));
  testing::run_threads(GetParam(), [&](Communicator& comm) {
    for (int round = 0; round < 100; ++round) {
      values[static_cast<std::size_t>(comm.rank())] = round;
      barrier(comm, call());
      for (const int value : values) EXPECT_EQ(value, round);
      barrier(comm, call());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BarrierTest, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace tnt
