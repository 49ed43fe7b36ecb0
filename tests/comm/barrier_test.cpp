// The barrier used by all collectives: no rank leaves it before all have entered, and each sees the others' earlier writes,
// with one level and with domains.
#include "comm/shm/barrier.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;

using Domains = std::vector<std::uint32_t>;  // of each rank

void run(const Domains& domains, const testing::Body& body) {
  const testing::ThreadJob job(static_cast<int>(domains.size()), testing::make_transport_in(domains));
  for (const auto& ending : job.run(body)) EXPECT_FALSE(ending) << ending->what();
}

class BarrierTest : public ::testing::TestWithParam<Domains> {};

TEST_P(BarrierTest, NobodyIsThroughBeforeAllAreThere) {
  std::atomic<int> arrived{0};
  run(GetParam(), [&](Communicator& comm) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      barrier(comm, call());
      EXPECT_GE(arrived, round * comm.size());
    }
  });
}

// Plain variables, so that a thread sanitizer checks the ordering.
TEST_P(BarrierTest, WhatWasWrittenBeforeIsSeenAfter) {
  std::vector<int> values(GetParam().size());
  run(GetParam(), [&](Communicator& comm) {
    for (int round = 0; round < 100; ++round) {
      values[static_cast<std::size_t>(comm.rank())] = round;
      barrier(comm, call());
      for (const int value : values) EXPECT_EQ(value, round);
      barrier(comm, call());
    }
  });
}

const Domains none(8);
const Domains two{1, 1, 1, 1, 2, 2, 2, 2};
const Domains uneven{1, 1, 1, 1, 1, 2, 2, 3, 3, 3};
const Domains four{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
INSTANTIATE_TEST_SUITE_P(Ranks, BarrierTest,
                         ::testing::Values(Domains(1), Domains(2), Domains(3), Domains(4), none, two, uneven, four));

// What the first rank says of its second call.
std::set<std::string> said(const Domains& domains) {
  Settings settings;
  settings.log_level = LogLevel::debug;
  configure_log(settings);
  std::set<std::string> lines;
  std::mutex mutex;
  set_log_sink([&](LogLevel, int, const std::string& text) {
    const std::scoped_lock lock(mutex);
    lines.insert(text);
  });
  run(domains, [](Communicator& comm) {
    for (int i = 0; i < 2; ++i) barrier(comm, call());
  });
  set_log_sink(nullptr);
  configure_log({});
  return lines;
}

TEST(Barrier, HasTwoLevelsWhereRanksAreInDomains) {
  EXPECT_EQ(said(none), std::set<std::string>{});
  EXPECT_EQ(said(two), std::set<std::string>{"barriers of 8 ranks in 2 domains with a cache each"});
  EXPECT_EQ(said(four), std::set<std::string>{"barriers of 16 ranks in 4 domains with a cache each"});
  EXPECT_EQ(said({1, 1, 1, 1, 2, 2, 2, 3}), std::set<std::string>{});
}

// A leader whose domain waits for its word is cancelled: the others find out themselves that all have arrived.
TEST(Barrier, NeedsNoLeaderOnceAllHaveArrived) {
  for (const int leader : {0, 4}) {
    std::atomic<bool> cancelled{false};
    run(two, [&](Communicator& world) {
      const auto part = world.split(0, 0, call());
      barrier(*part, call());
      if (world.rank() == leader) {
        std::thread waiting([&] { EXPECT_THROW(barrier(*part, call()), Error); });
        part->cancel();
        waiting.join();
        cancelled = true;
      } else {
        while (world.rank() == 7 && !cancelled) std::this_thread::yield();
        barrier(*part, call());
      }
      barrier(world, call());  // the job continues
    });
  }
}

}  // namespace
}  // namespace tnt
