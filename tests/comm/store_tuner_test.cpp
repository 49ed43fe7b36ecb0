// The choice between ordinary and streaming stores: the faster kind, found again when the machine changes.
#include "comm/shm/store_tuner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace tnt {
namespace {

// Simulates calls on a machine where the two kinds take the given nanoseconds per byte; returns the number of streaming calls.
int streaming_calls(StoreTuner& tuner, std::size_t bytes, int calls, double cached, double streaming) {
  int result = 0;
  for (int call = 0; call < calls; ++call) {
    const auto [store, timed] = tuner.next(bytes);
    if (store == Store::streaming) ++result;
    if (!timed) continue;
    tuner.record(bytes,
                 static_cast<std::int64_t>((store == Store::streaming ? streaming : cached) * static_cast<double>(bytes)));
  }
  return result;
}

TEST(StoreTuner, IsTheFasterOneButForFewTrials) {
  for (const std::size_t bytes :
       {std::size_t{600}, std::size_t{9000}, std::size_t{100'000}, std::size_t{1} << 20, std::size_t{1} << 30}) {
    StoreTuner tuner;
    EXPECT_GE(streaming_calls(tuner, bytes, 1000, 3, 1), 960) << bytes;
    StoreTuner other;
    EXPECT_LE(streaming_calls(other, bytes, 1000, 1, 3), 40) << bytes;
    EXPECT_GE(streaming_calls(other, bytes, 1000, 1, 3), 5) << "tried no more, so a change would go unnoticed";
  }
}

TEST(StoreTuner, FollowsAMachineThatChanges) {
  StoreTuner tuner;
  (void)streaming_calls(tuner, 1 << 20, 500, 1, 2);
  (void)streaming_calls(tuner, 1 << 20, 256, 4, 2);
  EXPECT_GE(streaming_calls(tuner, 1 << 20, 128, 4, 2), 124);
  (void)streaming_calls(tuner, 1 << 20, 64, 1, 4);
  EXPECT_LE(streaming_calls(tuner, 1 << 20, 128, 1, 4), 4);
}

// A call takes as long as its slowest rank. A rank that uses the other kind of stores is not faster then, and must not conclude
// anything from that.
TEST(StoreTuner, RanksFindTogetherWhatAllGain) {
  for (const bool streaming_is_best : {false, true}) {
    std::array<StoreTuner, 2> ranks;
    constexpr std::size_t bytes = 1 << 20;
    const auto time_of = [&](Store store) {
      return static_cast<std::int64_t>(bytes) * ((store == Store::streaming) == streaming_is_best ? 1 : 2);
    };
    std::array<int, 2> best{};
    for (int call = 0; call < 512; ++call) {
      const std::array<StoreTuner::Next, 2> next{ranks[0].next(bytes), ranks[1].next(bytes)};
      const std::int64_t slowest = std::max(time_of(next[0].store), time_of(next[1].store));
      for (std::size_t rank = 0; rank < 2; ++rank) {
        // at first a disturbance makes one of the two look slow to each rank
        const bool disturbed = call < 8 && (next[rank].store == Store::streaming) == (rank == 0);
        if (next[rank].timed) ranks[rank].record(bytes, disturbed ? 5 * slowest : slowest);
        if (call >= 256 && (next[rank].store == Store::streaming) == streaming_is_best) ++best[rank];
      }
    }
    EXPECT_GE(best[0], 240);
    EXPECT_GE(best[1], 240);
  }
}

TEST(StoreTuner, SizesAreApart) {
  StoreTuner tuner;
  (void)streaming_calls(tuner, 16'000, 100, 1, 2);
  (void)streaming_calls(tuner, 1 << 24, 100, 2, 1);
  EXPECT_LE(streaming_calls(tuner, 16'000, 64, 1, 2), 2);
  EXPECT_GE(streaming_calls(tuner, 1 << 24, 64, 2, 1), 62);
}

TEST(StoreTuner, OneDisturbedCallChangesNothing) {
  StoreTuner tuner;
  (void)streaming_calls(tuner, 1 << 20, 90, 3, 1);
  while (!tuner.next(1 << 20).timed) {
  }
  tuner.record(1 << 20, std::int64_t{1} << 40);
  EXPECT_GE(streaming_calls(tuner, 1 << 20, 60, 3, 1), 58);
}

TEST(StoreTuner, CallsWithoutBytesSayNothing) {
  StoreTuner tuner;
  for (int call = 0; call < 8; ++call) {
    EXPECT_FALSE(tuner.next(0).timed);
  }
  EXPECT_GE(streaming_calls(tuner, 1000, 256, 3, 1), 240);
}

TEST(StoreTuner, TimesFewCalls) {
  StoreTuner tuner;
  int timed = 0;
  for (int call = 0; call < 1000; ++call) timed += tuner.next(4096).timed ? 1 : 0;
  EXPECT_LE(timed, 50);
}

}  // namespace
}  // namespace tnt
