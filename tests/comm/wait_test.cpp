// The event count: no wake-up is lost however waiter and waker interleave, and an error in a waiter's check ends the wait.
#include "comm/shm/wait.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <thread>

namespace tnt {
namespace {

constexpr std::array policies{BackoffPolicy{}, BackoffPolicy{0, 5'000}, BackoffPolicy{0, 0}};

TEST(Wait, TwoThreadsAlternate) {
  for (const BackoffPolicy& backoff : policies) {
    EventCount event_count;
    std::atomic<int> turn{0};
    const auto play = [&](int parity) {
      for (int i = parity; i < 3000; i += 2) {
        wait_until(
            event_count, backoff, [&] { return turn.load() == i; }, [] {});
        turn.store(i + 1);
        notify_all(event_count);
      }
    };
    std::thread other([&] { play(1); });
    play(0);
    other.join();
    EXPECT_EQ(turn, 3000);
    EXPECT_EQ(event_count.sleepers, 0U);
  }
}

TEST(Wait, WhatIsReadyDoesNotWait) {
  EventCount event_count;
  wait_until(
      event_count, {}, [] { return true; }, [] { FAIL() << "nothing to check"; });
  EXPECT_EQ(event_count.count, 0U);
}

TEST(Wait, TheCheckMayGiveUp) {
  for (const BackoffPolicy& backoff : policies) {
    EventCount event_count;
    int checks = 0;
    const auto wait = [&] {
      wait_until(
          event_count, backoff, [] { return false; },
          [&] {
            if (++checks == 3) throw std::runtime_error("enough");
          });
    };
    EXPECT_THROW(wait(), std::runtime_error);
    EXPECT_EQ(checks, 3);
    EXPECT_EQ(event_count.sleepers, 0U);
  }
}

// A child process that is bound to one core, to test what is known about other processes.
class Bound {
 public:
  explicit Bound(int core) : pid_(fork()) {
    if (pid_ == 0) {
      pause();
      _exit(0);
    }
    bind(pid_, core);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] int pid() const { return pid_; }

  static void bind(int pid, int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(pid, sizeof(one), &one), 0);
  }

 private:
  int pid_;
};

TEST(BackoffPolicy, RanksOnCoresOfTheirOwnSpinHoweverFewEachHas) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one core";
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core) {
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  }
  const Bound first(cores[0]);
  const Bound second(cores[1]);
  EXPECT_GT(backoff_policy_for({0, first.pid()}).spin_ns, 0);
  std::thread([&] {  // binds itself: the other threads' cores stay as they are
    Bound::bind(0, cores[0]);
    EXPECT_GT(backoff_policy_for({0, second.pid()}).spin_ns, 0) << "each has a core of its own";
    EXPECT_EQ(backoff_policy_for({0, first.pid()}).spin_ns, 0) << "two on one core";
    EXPECT_EQ(backoff_policy_for({0, 0}).spin_ns, 0) << "nothing is known of one";
  })
      .join();
}

TEST(BackoffPolicy, RanksThatShareCoresGiveWayBeforeTheySleep) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  const auto cores = static_cast<std::size_t>(CPU_COUNT(&all));
  const auto of = [](std::size_t ranks) { return backoff_policy_for(std::vector<int>(ranks, 0)); };
  EXPECT_GT(of(cores).spin_ns, 0);
  EXPECT_EQ(of(cores).beside_computing().spin_ns, of(cores).spin_ns);
  for (const std::size_t ranks : {cores + 1, 4 * cores}) {
    EXPECT_EQ(of(ranks).spin_ns, 0) << "it would keep the rank that is waited for from its core";
    EXPECT_GE(of(ranks).yield_ns, 20'000) << "a wake-up takes longer than the turns of the others";
    EXPECT_LT(of(ranks).beside_computing().yield_ns, 10'000) << "its turns interrupt those that compute";
  }
  EXPECT_LT(of(4 * cores + 1).yield_ns, 10'000) << "the turns of so many take longer than a wake-up";
}

TEST(Wait, ARingWithoutSleepersCostsNothing) {
  EventCount event_count;
  notify_all(event_count);
  EXPECT_EQ(event_count.count, 0U);
}

}  // namespace
}  // namespace tnt
