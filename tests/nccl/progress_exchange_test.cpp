// What ranks tell each other about the progress of their devices, and the conclusions from it.
#include "comm/nccl/progress_exchange.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;

constexpr Call sum_of_4{.kind = Call::all_reduce, .dtype = TNT_FLOAT32, .op = TNT_SUM, .count = 4};
constexpr Call gather_of_4{.kind = Call::all_gather, .dtype = TNT_FLOAT32, .count = 4};

Progress entry(int rank, std::uint64_t started, std::uint64_t begun, std::uint64_t finished, const Call& next = sum_of_4) {
  return {.started = started, .begun = begun, .finished = finished, .next = next, .rank = rank};
}

TEST(WhoIsMissing, AreThoseWhoHaveNotStartedOrNotBegun) {
  const auto who = [](const std::vector<Progress>& latest) { return find_missing(latest, 17, 0).who; };
  EXPECT_EQ(who({entry(0, 17, 17, 16), entry(1, 16, 16, 16)}), "rank 1 has started only 16 operations");
  EXPECT_EQ(who({entry(0, 17, 17, 16), entry(1, 18, 16, 16), entry(2, 3, 3, 3)}),
            "rank 1 has started it, but its device has not reached it, rank 2 has started only 3 operations");
  EXPECT_EQ(who({entry(0, 17, 17, 16), entry(1, 19, 17, 16)}).find("all ranks have started it: "), 0U);
  Progress gone = entry(1, 16, 16, 16);
  gone.leaving = 1;
  EXPECT_EQ(who({entry(0, 17, 17, 16), gone}), "rank 1 has destroyed its communicator after 16 operations");
}

TEST(WhoIsMissing, IsHeldUpIfNobodyIsToBlame) {
  const auto blocked = [](const std::vector<Progress>& latest) { return find_missing(latest, 17, 0).blocked; };
  EXPECT_TRUE(blocked({entry(0, 17, 17, 16), entry(1, 18, 16, 16)}));
  EXPECT_FALSE(blocked({entry(0, 17, 17, 16), entry(1, 18, 16, 16), entry(2, 3, 3, 3)}));
  EXPECT_FALSE(blocked({entry(0, 17, 17, 16), entry(1, 19, 17, 16)}));
}

TEST(FindMismatch, ComparesThoseThatWaitInTheSameNumber) {
  EXPECT_FALSE(find_mismatch({}));
  EXPECT_FALSE(find_mismatch({entry(0, 5, 5, 4), entry(1, 5, 5, 4)}));
  EXPECT_FALSE(find_mismatch({entry(0, 5, 5, 4), entry(1, 6, 5, 5, gather_of_4)}));  // another number
  EXPECT_FALSE(find_mismatch({entry(0, 5, 5, 4), entry(1, 4, 4, 4, gather_of_4)}));  // not started
  const auto message = find_mismatch({entry(0, 5, 5, 4), entry(1, 5, 5, 4), entry(2, 5, 5, 4, gather_of_4)});
  ASSERT_TRUE(message);
  EXPECT_EQ(message->find("rank 2 called all_gather of 4 float32 while rank 0 called all_reduce sum of 4 float32 (call 5 of"),
            0U)
      << *message;
}

TEST(ProgressExchange, EveryRankLearnsAllWords) {
  testing::run_threads(3, [](Communicator& host) {
    ProgressExchange progress_exchange(host.split(0, 0, call()), 0.01, testing::default_timeout, [&](std::string*) {
      return entry(host.rank(), 10 + static_cast<std::uint64_t>(host.rank()), 0, 0);
    });
    const Deadline deadline(testing::default_timeout);
    while (progress_exchange.latest().empty() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto latest = progress_exchange.latest();
    ASSERT_EQ(latest.size(), 3U);
    for (std::uint64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(latest[rank].started, 10 + rank);
  });
}

TEST(ProgressExchange, TheFirstThatLeavesEndsItForAll) {
  testing::run_threads(3, [](Communicator& host) {
    ProgressExchange progress_exchange(host.split(0, 0, call()), 0.01, testing::default_timeout,
                                       [&](std::string*) { return entry(host.rank(), 0, 0, 0); });
    if (host.rank() == 1) return;  // leaves the job too
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_FALSE(host.async_error());
    EXPECT_FALSE(progress_exchange.overdue());
    EXPECT_EQ(progress_exchange.latest()[1].leaving, 1U);
  });
}

// Only rank 0 takes part in the exchange: it does not wait forever for the others.
TEST(ProgressExchange, LeavingDoesNotWaitForThoseWhoDoNotAnswer) {
  testing::run_threads(2, [](Communicator& host) {
    auto own = host.split(0, 0, call());
    if (host.rank() == 0) {
      ProgressExchange progress_exchange(std::move(own), 0.05, testing::default_timeout,
                                         [](std::string*) { return Progress{}; });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_TRUE(progress_exchange.overdue());
    }
    barrier(host, call());  // the job goes on
  });
}

TEST(ProgressExchange, WhoDoesNotAnswerInTimeIsNamedWithWhatIsWaitedFor) {
  const std::string message = testing::common_error(2, TNT_TIMEOUT, [](Communicator& host) {
    auto own = host.split(0, 0, call());
    std::unique_ptr<ProgressExchange> progress_exchange;
    if (host.rank() == 0) {
      progress_exchange = std::make_unique<ProgressExchange>(std::move(own), 0.05, 0.3, [](std::string* place) {
        *place = "all_reduce sum of 4 float32 (operation 7)";
        return Progress{};
      });
    }
    while (true) {
      if (const auto error = host.async_error()) throw Error(*error);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(message.find("rank 1 did not arrive within 0.3 s"), 0U) << message;
  EXPECT_NE(message.find("all_reduce sum of 4 float32 (operation 7)"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
