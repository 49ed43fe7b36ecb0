// The bell: no ring is lost however waiter and ringer meet, and a waiter's check ends the wait.
#include "comm/shm/wait.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <thread>

namespace tnt {
namespace {

constexpr std::array patiences{Patience{}, Patience{0, 5'000}, Patience{0, 0}};

TEST(Wait, TwoThreadsAlternate) {
  for (const Patience& patience : patiences) {
    Bell bell;
    std::atomic<int> turn{0};
    const auto play = [&](int parity) {
      for (int i = parity; i < 3000; i += 2) {
        wait_until(
            bell, patience, [&] { return turn.load() == i; }, [] {});
        turn.store(i + 1);
        ring(bell);
      }
    };
    std::thread other([&] { play(1); });
    play(0);
    other.join();
    EXPECT_EQ(turn, 3000);
    EXPECT_EQ(bell.sleepers, 0U);
  }
}

TEST(Wait, WhatIsReadyDoesNotWait) {
  Bell bell;
  wait_until(
      bell, {}, [] { return true; }, [] { FAIL() << "nothing to check"; });
  EXPECT_EQ(bell.count, 0U);
}

TEST(Wait, TheCheckMayGiveUp) {
  for (const Patience& patience : patiences) {
    Bell bell;
    int checks = 0;
    const auto wait = [&] {
      wait_until(
          bell, patience, [] { return false; },
          [&] {
            if (++checks == 3) throw std::runtime_error("enough");
          });
    };
    EXPECT_THROW(wait(), std::runtime_error);
    EXPECT_EQ(checks, 3);
    EXPECT_EQ(bell.sleepers, 0U);
  }
}

TEST(Wait, ARingWithoutSleepersCostsNothing) {
  Bell bell;
  ring(bell);
  EXPECT_EQ(bell.count, 0U);
}

}  // namespace
}  // namespace tnt
