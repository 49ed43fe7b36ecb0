// Which way of reducing is chosen by ranks whose steps take known times.
#include "reducer/overlap_tuner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tnt {
namespace {

// Ranks of one job; their steps end together.
class Job {
 public:
  explicit Job(std::vector<Overlap> modes) {
    for (const Overlap mode : modes) ranks_.emplace_back(mode);
  }

  // The number of rank 0's steps with the thread. ns: the time of a step without and with the thread.
  int run(std::size_t steps, std::array<std::int64_t, 2> ns) {
    int threaded = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      threaded += ranks_.front().threaded() ? 1 : 0;
      // the slowest rank counts
      const bool any = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.threaded(); });
      now_ += ns[any ? 1 : 0];
      std::size_t agreeing = 0;
      OverlapTuner::Seconds slowest{};
      for (OverlapTuner& rank : ranks_) {
        if (!rank.step_ended(now_)) continue;
        ++agreeing;
        const auto seconds = rank.seconds();
        for (std::size_t way = 0; way < 2; ++way) slowest[way] = std::max(slowest[way], seconds[way]);
      }
      EXPECT_TRUE(agreeing == 0 || agreeing == ranks_.size()) << "in step " << step;
      if (agreeing > 0) {
        for (OverlapTuner& rank : ranks_) rank.set_agreed(slowest);
      }
    }
    return threaded;
  }

 private:
  std::vector<OverlapTuner> ranks_;
  std::int64_t now_ = 1'000'000'000;
};

constexpr auto automatic = Overlap::automatic;

TEST(OverlapTuner, BothWaysAreTriedEquallyOften) {
  EXPECT_EQ(Job({automatic}).run(OverlapTuner::trial_ends, {10, 20}),
            static_cast<int>(OverlapTuner::trial_begins + (OverlapTuner::trial_ends - OverlapTuner::trial_begins) / 2));
}

TEST(OverlapTuner, TheFasterOneIsTaken) {
  for (const bool thread_is_faster : {false, true}) {
    Job job({automatic, automatic});
    const std::array<std::int64_t, 2> ns =
        thread_is_faster ? std::array<std::int64_t, 2>{20, 10} : std::array<std::int64_t, 2>{10, 20};
    (void)job.run(OverlapTuner::trial_ends, ns);
    EXPECT_EQ(job.run(500, ns), thread_is_faster ? 500 : 0);
  }
}

TEST(OverlapTuner, NoiseLeavesTheThread) {
  Job job({automatic});
  (void)job.run(OverlapTuner::trial_ends, {990, 1000});
  EXPECT_EQ(job.run(100, {990, 1000}), 100);
}

TEST(OverlapTuner, FollowsAMachineThatChanges) {
  Job job({automatic, automatic});
  (void)job.run(500, {10, 20});
  EXPECT_EQ(job.run(10, {10, 20}), 0);
  (void)job.run(OverlapTuner::steps_between_trials, {20, 10});
  EXPECT_EQ(job.run(10, {20, 10}), 10);
}

TEST(OverlapTuner, ASettingIsFollowedFromTheFirstStep) {
  EXPECT_EQ(Job({Overlap::on}).run(3000, {10, 20}), 3000);
  EXPECT_EQ(Job({Overlap::off}).run(3000, {20, 10}), 0);
}

// A rank cannot stop using the thread alone: the others would wait for it.
TEST(OverlapTuner, OneRanksSettingIsTakenByThoseThatHaveNone) {
  for (const Overlap mode : {Overlap::on, Overlap::off}) {
    Job job({automatic, mode});
    const std::array<std::int64_t, 2> ns{mode == Overlap::on ? 10 : 20, 15};
    (void)job.run(OverlapTuner::trial_ends, ns);
    EXPECT_EQ(job.run(100, ns), mode == Overlap::on ? 100 : 0);
  }
}

TEST(OverlapTuner, SettingsThatContradictEachOtherAreFollowedByTheRankThatHasThem) {
  Job job({automatic, Overlap::on, Overlap::off});
  (void)job.run(OverlapTuner::trial_ends, {10, 20});
  EXPECT_EQ(job.run(100, {10, 20}), 100);
}

}  // namespace
}  // namespace tnt
