// The choice between stores through the caches and past them: the faster one, found again when the machine changes.
#include "comm/shm/store_choice.hpp"

#include <gtest/gtest.h>

namespace tnt {
namespace {

// Runs calls of a machine on which the two take so many nanoseconds a byte; returns how many were streaming.
int streaming_calls(StoreChoice& choice, std::size_t bytes, int calls, double cached, double streaming) {
  int result = 0;
  for (int call = 0; call < calls; ++call) {
    const auto [store, timed] = choice.next(bytes);
    if (store == Store::streaming) ++result;
    if (!timed) continue;
    choice.took(bytes,
                static_cast<std::int64_t>((store == Store::streaming ? streaming : cached) * static_cast<double>(bytes)));
  }
  return result;
}

TEST(StoreChoice, IsTheFasterOneButForFewTrials) {
  for (const std::size_t bytes :
       {std::size_t{600}, std::size_t{9000}, std::size_t{100'000}, std::size_t{1} << 20, std::size_t{1} << 30}) {
    StoreChoice choice;
    EXPECT_GE(streaming_calls(choice, bytes, 1000, 3, 1), 970) << bytes;
    StoreChoice other;
    EXPECT_LE(streaming_calls(other, bytes, 1000, 1, 3), 30) << bytes;
    EXPECT_GE(streaming_calls(other, bytes, 1000, 1, 3), 5) << "tried no more, so a change would go unnoticed";
  }
}

TEST(StoreChoice, FollowsAMachineThatChanges) {
  StoreChoice choice;
  (void)streaming_calls(choice, 1 << 20, 500, 1, 2);
  EXPECT_GE(streaming_calls(choice, 1 << 20, 20, 4, 2), 12);
  EXPECT_GE(streaming_calls(choice, 1 << 20, 128, 4, 2), 124);
  EXPECT_LE(streaming_calls(choice, 1 << 20, 20, 1, 4), 10);
  StoreChoice small;
  (void)streaming_calls(small, 1000, 500, 1, 2);
  (void)streaming_calls(small, 1000, 1000, 4, 2);
  EXPECT_GE(streaming_calls(small, 1000, 128, 4, 2), 124);
}

TEST(StoreChoice, SizesAreApart) {
  StoreChoice choice;
  (void)streaming_calls(choice, 16'000, 100, 1, 2);
  (void)streaming_calls(choice, 1 << 24, 100, 2, 1);
  EXPECT_LE(streaming_calls(choice, 16'000, 64, 1, 2), 2);
  EXPECT_GE(streaming_calls(choice, 1 << 24, 64, 2, 1), 62);
}

TEST(StoreChoice, OneDisturbedCallChangesNothing) {
  StoreChoice choice;
  (void)streaming_calls(choice, 1 << 20, 90, 3, 1);
  while (!choice.next(1 << 20).timed) {
  }
  choice.took(1 << 20, std::int64_t{1} << 40);
  EXPECT_GE(streaming_calls(choice, 1 << 20, 60, 3, 1), 58);
}

TEST(StoreChoice, CallsWithoutBytesSayNothing) {
  StoreChoice choice;
  for (int call = 0; call < 8; ++call) {
    EXPECT_FALSE(choice.next(0).timed);
  }
  EXPECT_GE(streaming_calls(choice, 1000, 256, 3, 1), 240);
}

TEST(StoreChoice, TimesFewCalls) {
  StoreChoice choice;
  int timed = 0;
  for (int call = 0; call < 1000; ++call) timed += choice.next(4096).timed ? 1 : 0;
  EXPECT_LE(timed, 50);
}

}  // namespace
}  // namespace tnt
