// The choice between direct reads and the slots: the faster path of all ranks together, found again when the machine changes.
#include "comm/shm/path_tuner.hpp"

#include <gtest/gtest.h>

namespace tnt {
namespace {

// Simulates calls on two ranks that take so long by each path; returns how many go through the slots.
int calls_by_slots(PathTuner& one, PathTuner& other, std::size_t bytes, int calls, PathTuner::Times of_one,
                   PathTuner::Times of_other) {
  int result = 0;
  for (int call = 0; call < calls; ++call) {
    PathTuner::Next next = one.next(bytes);
    const PathTuner::Next same = other.next(bytes);
    EXPECT_EQ(next.path, same.path);
    EXPECT_EQ(next.decides, same.decides);
    if (next.decides) {
      PathTuner::Times all = one.times(bytes);
      for (std::size_t path = 0; path < all.size(); ++path) all.at(path) += other.times(bytes).at(path);
      one.decide(bytes, all);
      other.decide(bytes, all);
      next.path = one.best(bytes);
    }
    const auto path = static_cast<std::size_t>(next.path);
    if (next.timed) one.record(bytes, next.path, of_one.at(path) + call % 3);
    if (same.timed) other.record(bytes, next.path, of_other.at(path) + 100 * (call % 2));
    if (next.path == Path::slots) ++result;
  }
  return result;
}

TEST(PathTuner, IsTheFasterOneOfAllRanksButForFewTrials) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{40'000}, std::size_t{1} << 20, std::size_t{1} << 33}) {
    PathTuner one;
    PathTuner other;
    EXPECT_GE(calls_by_slots(one, other, bytes, 1000, {300, 200}, {300, 350}), 990) << bytes;
    PathTuner third;
    PathTuner fourth;
    const int tried = calls_by_slots(third, fourth, bytes, 1000, {200, 300}, {350, 300});
    EXPECT_LE(tried, 8) << bytes;
    EXPECT_GE(tried, 5) << "tried no more, so a change would go unnoticed";
  }
}

TEST(PathTuner, FollowsAMachineThatChangesAndKeepsSizesApart) {
  PathTuner one;
  PathTuner other;
  EXPECT_LE(calls_by_slots(one, other, 1 << 20, 600, {100, 200}, {100, 200}), 8);
  EXPECT_GE(calls_by_slots(one, other, 1 << 20, 1000, {400, 200}, {400, 200}), 560);
  EXPECT_EQ(one.best(1 << 20), Path::slots);
  EXPECT_EQ(one.best(1 << 15), Path::direct);
}

}  // namespace
}  // namespace tnt
