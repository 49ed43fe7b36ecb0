// Ranks that are killed or stopped, or that exit: the others get one message that names the rank, quickly.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

constexpr std::int64_t second = 1'000'000'000;

// Shared between the test and its ranks.
struct Board {
  std::atomic<int> rounds{0};         // collectives that rank 0 has finished
  std::atomic<int> failed{0};         // ranks that have seen an error
  std::atomic<bool> stop{false};      // the ranks may end
  std::atomic<std::int64_t> when{0};  // the signal was sent
  std::array<std::array<char, 1024>, 8> messages{};
};

void remember(Board& board, int rank) {
  std::strncpy(board.messages[static_cast<std::size_t>(rank)].data(), tnt_last_error(), 1023);
  ++board.failed;
}

std::string message(const Board& board, int rank) { return board.messages[static_cast<std::size_t>(rank)].data(); }

// Reduces until an error occurs; returns the error.
tnt_status_t sum_until_failure(const Joined& job, Board& board, std::size_t count) {
  const Array in = exact_values(TNT_FLOAT32, count, 1);
  Array out(TNT_FLOAT32, count);
  tnt_status_t status = TNT_SUCCESS;
  while (status == TNT_SUCCESS) {
    status = all_reduce(job.world, in, out, TNT_SUM);
    if (job.rank == 0 && status == TNT_SUCCESS) ++board.rounds;
  }
  remember(board, job.rank);
  return status;
}

// The job's deadline is that of TNT_TIMEOUT; the communicator's is much shorter.
TEST(Deadline, OfACommunicatorIsItsOwnAndThatOfItsParts) {
  Shared<Board> board;
  run_processes(2, [&](int rank) {
    const Joined job;
    check(tnt_comm_set_timeout(job.world, 0.2));
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, 0, 0, &part));
    check(tnt_comm_set_timeout(job.world, 0));
    if (rank == 1) return wait_for([&] { return board->failed == 1; });
    const std::int64_t begin = tnt_clock_ns();
    EXPECT_EQ(tnt_barrier(part, nullptr, nullptr), TNT_TIMEOUT);
    EXPECT_NE(std::string(tnt_last_error()).find("rank 1 did not arrive within 0.2 s"), std::string::npos) << tnt_last_error();
    EXPECT_LT(tnt_clock_ns() - begin, 10 * second);
    remember(*board, rank);
  });
}

struct Killing {
  int ranks;
  int victim;
  std::size_t count;
  std::string domain{};  // TNT_INTERNAL_DOMAIN
};
class KilledTest : public ::testing::TestWithParam<Killing> {};

TEST_P(KilledTest, IsNamedSoonToAllOthers) {
  const Killing& killing = GetParam();
  Shared<Board> board;
  ProcessJob job(killing.ranks,
                 [&](int rank) {
                   const Joined joined;
                   EXPECT_EQ(sum_until_failure(joined, *board, killing.count), TNT_PEER_LOST)
                       << "rank " << rank << ": " << tnt_last_error();
                   EXPECT_LT(tnt_clock_ns() - board->when, 10 * second);
                   EXPECT_EQ(tnt_barrier(joined.world, nullptr, nullptr), TNT_PEER_LOST);
                 },
                 {.environment = {{"TNT_INTERNAL_DOMAIN", killing.domain}}});
  wait_for([&] { return board->rounds > 20; });
  board->when = tnt_clock_ns();
  job.send(killing.victim, SIGKILL);
  const auto endings = job.wait();
  const int witness = killing.victim == 0 ? 1 : 0;
  for (int rank = 0; rank < killing.ranks; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    if (rank == killing.victim) {
      EXPECT_EQ(ending.signal, SIGKILL);
      continue;
    }
    EXPECT_EQ(ending.code, 0);
    EXPECT_EQ(message(*board, rank), message(*board, witness));
  }
  EXPECT_NE(message(*board, witness).find("rank " + std::to_string(killing.victim) + " (process "), std::string::npos)
      << message(*board, witness);
  EXPECT_NE(message(*board, witness).find("died while rank "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Jobs, KilledTest,
                         ::testing::Values(Killing{2, 1, 3}, Killing{2, 0, 3}, Killing{3, 1, 100'000}, Killing{4, 0, 5000},
                                           Killing{8, 7, 1'000'000}, Killing{8, 3, 3}, Killing{8, 4, 5000, "4"},
                                           Killing{8, 1, 1'000'000, "2"}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "Ranks" + std::to_string(info.param.victim) + "Killed" +
                                  std::to_string(info.param.count) +
                                  (info.param.domain.empty() ? "" : "InDomainsOf" + info.param.domain);
                         });

class StoppedTest : public ::testing::TestWithParam<int> {};

TEST_P(StoppedTest, ForAMomentHarmsNobody) {
  Shared<Board> board;
  ProcessJob job(GetParam(), [&](int rank) {
    const Joined joined;
    for (int stop = 0; stop == 0;) {
      stop = board->stop ? 1 : 0;
      check(tnt_broadcast(joined.world, &stop, &stop, 1, TNT_INT32, 0, nullptr, nullptr));
      if (rank == 0) ++board->rounds;
    }
  });
  wait_for([&] { return board->rounds > 20; });
  job.send(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  job.send(1, SIGCONT);
  const int before = board->rounds;
  wait_for([&] { return board->rounds > before + 20; });
  board->stop = true;
  for (const Ending& ending : job.wait()) EXPECT_EQ(ending.code, 0);
}

TEST_P(StoppedTest, PastTheDeadlineIsNamed) {
  const int victim = GetParam() - 1;
  Shared<Board> board;
  ProcessJob job(GetParam(),
                 [&](int rank) {
                   const Joined joined;
                   EXPECT_EQ(sum_until_failure(joined, *board, 100), TNT_TIMEOUT)
                       << "rank " << rank << ": " << tnt_last_error();
                 },
                 {.environment = {{"TNT_TIMEOUT", "1"}}});
  wait_for([&] { return board->rounds > 20; });
  job.send(victim, SIGSTOP);
  wait_for([&] { return board->failed == GetParam() - 1; });
  job.send(victim, SIGCONT);  // it finds out when it continues
  for (const Ending& ending : job.wait()) EXPECT_EQ(ending.code, 0);
  const std::string expected = "rank " + std::to_string(victim) + " did not arrive within 1 s";
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(message(*board, rank).substr(0, expected.size()), expected);
    EXPECT_EQ(message(*board, rank), message(*board, 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, StoppedTest, ::testing::ValuesIn(tnt::testing::some_of({2, 3, 4, 8}, {2, 3})));

struct End {
  const char* name;
  void (*leave)();  // after joining
  const char* how;
};
class EndedTest : public ::testing::TestWithParam<End> {};

TEST_P(EndedTest, IsNamedToWhoStillWaits) {
  run_processes(3, [&](int rank) {
    if (rank == 1) {
      check(tnt_init(nullptr));
      return GetParam().leave();
    }
    const Joined job;
    EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_PEER_LOST) << tnt_last_error();
    EXPECT_NE(std::string(tnt_last_error()).find(GetParam().how), std::string::npos) << tnt_last_error();
  });
}

const End ends[] = {{"Finalized", [] { check(tnt_finalize()); }, "rank 1 left the job (its script has ended)"},
                    {"Vanished", [] { _exit(0); }, "rank 1 (process "}};
INSTANTIATE_TEST_SUITE_P(Ways, EndedTest, ::testing::ValuesIn(ends),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FailureProcess, AnAbortReachesAll) {
  Shared<Board> board;
  run_processes(4, [&](int rank) {
    const Joined job;
    if (rank == 2) {
      wait_for([&] { return board->rounds > 0; });
      check(tnt_comm_abort(job.world, "the loss is not a number"));
    } else {
      board->rounds = 1;
    }
    EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), TNT_ABORTED);
    EXPECT_STREQ(tnt_last_error(), "rank 2: the loss is not a number");
  });
}

TEST(FailureProcess, AMismatchIsTheSameMessageOnAll) {
  Shared<Board> board;
  run_processes(4, [&](int rank) {
    const Joined job;
    const Array in = exact_values(TNT_FLOAT32, rank == 2 ? 11 : 10, 1);
    Array out = in;
    EXPECT_EQ(all_reduce(job.world, in, out, TNT_SUM), TNT_MISMATCH);
    remember(*board, rank);
  });
  // reported by the first rank that notices: rank 0, or another one that arrived earlier
  const std::string first = "rank 2 called all_reduce sum of 11 float32 while rank ";
  const std::string second = " called all_reduce sum of 10 float32";
  const std::string said = message(*board, 0).substr(0, first.size() + 1 + second.size());
  EXPECT_TRUE(said.starts_with(first) && said.ends_with(second)) << said;
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(message(*board, rank).substr(0, said.size()), said);
}

}  // namespace
