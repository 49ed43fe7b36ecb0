// TNT_ERRORS_RETURN: an error stays in its communicator, and those alive go on. Ranks are killed at any moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/effort.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

std::string last_error() { return tnt_last_error(); }

bool mentions(const std::string& text) { return last_error().find(text) != std::string::npos; }

// The communicator of all ranks, whose errors are returned.
tnt_comm_t returning(const Joined& job) {
  tnt_comm_t part = nullptr;
  check(tnt_comm_split(job.world, 0, 0, &part));
  check(tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN));
  return part;
}

int size_of(tnt_comm_t comm) {
  int size = 0;
  check(tnt_comm_size(comm, &size));
  return size;
}

// The ranks in the job of the communicator's members.
std::vector<int> members_of(tnt_comm_t comm, int rank) {
  std::vector<int> ranks(static_cast<std::size_t>(size_of(comm)));
  check(tnt_all_gather(comm, &rank, ranks.data(), 1, TNT_INT32, nullptr, nullptr));
  return ranks;
}

// Calls of all kinds until one fails; checks the results of the others.
tnt_status_t work_until_failure(tnt_comm_t comm, int rank, std::size_t count, std::atomic<int>& rounds) {
  const std::vector<double> in(count, rank + 1);
  std::vector<double> sums(count);
  std::vector<double> same(count);
  const int size = size_of(comm);
  double expected = 0;
  while (true) {
    if (const tnt_status_t status = tnt_all_reduce(comm, in.data(), sums.data(), count, TNT_FLOAT64, TNT_SUM, nullptr, nullptr);
        status != TNT_SUCCESS) {
      return status;
    }
    if (expected == 0) expected = sums[0];
    EXPECT_EQ(sums.back(), expected);
    same[0] = sums[0];
    if (const tnt_status_t status =
            tnt_broadcast(comm, same.data(), same.data(), count, TNT_FLOAT64, size - 1, nullptr, nullptr);
        status != TNT_SUCCESS) {
      return status;
    }
    EXPECT_EQ(same[0], expected);
    ++rounds;
  }
}

struct Board {
  std::array<std::atomic<int>, 8> rounds{};  // of all ranks together, by how many have been killed
  std::atomic<bool> flag{false};
  std::atomic<int> count{0};
};

struct Kills {
  std::vector<int> order;  // of 0 to n - 1; the last one survives
  std::size_t count;
};
class KillsTest : public ::testing::TestWithParam<Kills> {};

// One rank after another is killed in the middle of collectives, until one is left.
TEST_P(KillsTest, ThoseAliveGoOn) {
  const Kills& kills = GetParam();
  const auto ranks = static_cast<int>(kills.order.size());
  Shared<Board> board;
  ProcessJob job(ranks, [&](int rank) {
    const Joined joined;
    tnt_comm_t comm = returning(joined);
    for (std::size_t killed = 0; killed + 1 < kills.order.size(); ++killed) {
      EXPECT_EQ(work_until_failure(comm, rank, kills.count, board->rounds.at(killed)), TNT_PEER_LOST) << last_error();
      EXPECT_TRUE(mentions("rank " + std::to_string(kills.order[killed]) + " (process ")) << last_error();
      EXPECT_EQ(tnt_comm_check(comm), TNT_PEER_LOST);
      EXPECT_EQ(tnt_comm_check(joined.world), TNT_SUCCESS) << last_error();
      tnt_comm_t smaller = nullptr;
      check(tnt_comm_shrink(comm, &smaller));
      std::vector<int> alive(kills.order.begin() + static_cast<std::ptrdiff_t>(killed) + 1, kills.order.end());
      std::sort(alive.begin(), alive.end());
      EXPECT_EQ(members_of(smaller, rank), alive);
      check(tnt_comm_destroy(comm));
      comm = smaller;
    }
    check(tnt_barrier(comm, nullptr, nullptr));
  });
  for (std::size_t killed = 0; killed + 1 < kills.order.size(); ++killed) {
    wait_for([&] { return board->rounds.at(killed) > 20; });
    job.send(kills.order[killed], SIGKILL);
  }
  const auto endings = job.wait();
  for (int rank = 0; rank < ranks; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    if (rank == kills.order.back()) {
      EXPECT_EQ(ending.code, 0);
    } else {
      EXPECT_EQ(ending.signal, SIGKILL) << "rank " << rank << ", code " << ending.code;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, KillsTest,
                         ::testing::Values(Kills{{1, 0, 2}, 3}, Kills{{2, 1, 0}, 20'000}, Kills{{0, 3, 1, 2}, 100},
                                           Kills{{7, 0, 3, 4, 1, 6, 2, 5}, 1}, Kills{{0, 1, 2, 3, 4, 5, 6, 7}, 100'000}),
                         [](const auto& info) {
                           std::string name = "Ranks";
                           for (const int rank : info.param.order) name += std::to_string(rank);
                           return name + "Count" + std::to_string(info.param.count);
                         });

void die_after(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    kill(getpid(), SIGKILL);
  }).detach();
}

class KilledInShrinkTest : public ::testing::TestWithParam<int> {};

// Two ranks die at moments of their own while the others agree on who is alive. All that are left have the same members then.
TEST_P(KilledInShrinkTest, TheOthersAgree) {
  const int ranks = GetParam();
  for (int attempt = 0; attempt < effort(25, 4); ++attempt) {
    Shared<Board> board;
    const int first = attempt % ranks;
    const int second = (first + 1 + attempt % (ranks - 1)) % ranks;
    std::mt19937 random(static_cast<unsigned>(attempt));
    const std::chrono::microseconds delay(random() % 3000);
    ProcessJob job(ranks, [&](int rank) {
      const Joined joined;
      tnt_comm_t comm = returning(joined);
      if (rank == first) raise(SIGKILL);
      EXPECT_EQ(tnt_barrier(comm, nullptr, nullptr), TNT_PEER_LOST);
      if (rank == second) die_after(delay);
      std::vector<int> members(static_cast<std::size_t>(ranks));
      while (true) {
        tnt_comm_t smaller = nullptr;
        check(tnt_comm_shrink(comm, &smaller));
        check(tnt_comm_destroy(comm));
        comm = smaller;
        members.resize(static_cast<std::size_t>(size_of(comm)));
        if (tnt_all_gather(comm, &rank, members.data(), 1, TNT_INT32, nullptr, nullptr) == TNT_SUCCESS &&
            static_cast<int>(members.size()) == ranks - 2) {
          break;
        }
        if (const tnt_status_t status = work_until_failure(comm, rank, 10, board->rounds[0]); status != TNT_PEER_LOST) {
          ADD_FAILURE() << tnt_status_name(status) << ": " << last_error();
        }
      }
      for (const int member : members) EXPECT_TRUE(member != first && member != second);
      check(tnt_barrier(comm, nullptr, nullptr));
    });
    const auto endings = job.wait();
    for (int rank = 0; rank < ranks; ++rank) {
      const Ending& ending = endings[static_cast<std::size_t>(rank)];
      if (rank == first || rank == second) {
        EXPECT_EQ(ending.signal, SIGKILL);
      } else {
        EXPECT_EQ(ending.code, 0) << "rank " << rank << ", attempt " << attempt;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledInShrinkTest, ::testing::Values(3, 4, 8));

TEST(CommErrors, AnAbortStaysInItsCommunicator) {
  run_processes(4, [](int rank) {
    const Joined job;
    tnt_comm_t part = nullptr;
    check(tnt_comm_split(job.world, rank / 3, 0, &part));  // of the ranks 0, 1, 2
    check(tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN));
    tnt_comm_t other = nullptr;
    check(tnt_comm_split(part, 0, 0, &other));
    const tnt_tensor_t tensor{"weights", 1, TNT_FLOAT32};
    tnt_reducer_t reducer = nullptr;
    check(tnt_reducer_create(part, &tensor, 1, nullptr, &reducer));
    if (rank == 1) check(tnt_comm_abort(part, "the loss is not a number"));
    if (rank < 3) {
      EXPECT_EQ(tnt_barrier(part, nullptr, nullptr), TNT_ABORTED);
      EXPECT_EQ(last_error(), "rank 1: the loss is not a number");
      EXPECT_EQ(tnt_comm_check(part), TNT_ABORTED);
      float value = 1;  // of a reducer of the communicator
      check(tnt_reducer_ready(reducer, 0, &value, &value, 1, nullptr));
      EXPECT_EQ(tnt_reducer_finish(reducer, nullptr), TNT_ABORTED);
    }
    check(tnt_reducer_destroy(reducer));
    check(tnt_barrier(other, nullptr, nullptr));
    check(tnt_comm_check(job.world));
    check(tnt_barrier(job.world, nullptr, nullptr));
    check(tnt_comm_destroy(part));
    check(tnt_comm_destroy(other));
  });
}

TEST(CommErrors, AWorkAndAMessageEndWithTheirCommunicator) {
  run_processes(3, [](int rank) {
    const Joined job;
    tnt_comm_t part = returning(job);
    if (rank == 2) {
      check(tnt_comm_abort(part, nullptr));
    } else {
      tnt_work_t sum = nullptr;
      tnt_work_t message = nullptr;
      float value = 0;
      float received = 0;
      check(tnt_all_reduce(part, &value, &value, 1, TNT_FLOAT32, TNT_SUM, nullptr, &sum));
      check(tnt_recv(part, &received, 1, TNT_FLOAT32, 2, nullptr, &message));
      EXPECT_EQ(tnt_work_wait(sum, -1), TNT_ABORTED) << last_error();
      EXPECT_EQ(tnt_work_wait(message, -1), TNT_ABORTED) << last_error();
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST(CommErrors, ADeadlineAndDifferentCallsStayInTheirCommunicator) {
  run_processes(2, [](int rank) {
    const Joined job;
    tnt_comm_t part = returning(job);
    float value = 0;
    EXPECT_EQ(tnt_all_reduce(part, &value, &value, 1, TNT_FLOAT32, rank == 0 ? TNT_SUM : TNT_MAX, nullptr, nullptr),
              TNT_MISMATCH);
    check(tnt_barrier(job.world, nullptr, nullptr));
    tnt_comm_t late = returning(job);
    if (rank == 0) {
      check(tnt_comm_set_timeout(late, 0.1));
      EXPECT_EQ(tnt_barrier(late, nullptr, nullptr), TNT_TIMEOUT);
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
    EXPECT_EQ(tnt_barrier(late, nullptr, nullptr), TNT_TIMEOUT);
    EXPECT_TRUE(mentions("rank 1 did not arrive within 0.1 s")) << last_error();
  });
}

TEST(CommErrors, DifferentModesAreNamedAndChangeNothing) {
  run_processes(3, [](int rank) {
    const Joined job;
    EXPECT_EQ(tnt_comm_set_error_mode(job.world, rank == 1 ? TNT_ERRORS_RETURN : TNT_ERRORS_END_JOB), TNT_MISMATCH);
    EXPECT_TRUE(mentions("rank 0 of the communicator passed TNT_ERRORS_END_JOB, rank 1 passed TNT_ERRORS_RETURN"))
        << last_error();
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST(CommErrors, ALateRankIsLeftOutOfTheShrink) {
  Shared<Board> board;
  run_processes(3, [&](int rank) {
    const Joined job;
    tnt_comm_t comm = returning(job);
    tnt_comm_t smaller = nullptr;
    if (rank == 1) {
      wait_for([&] { return board->count == 2; });
      EXPECT_EQ(tnt_comm_shrink(comm, &smaller), TNT_TIMEOUT);
      EXPECT_TRUE(mentions("rank 1 came to the shrink of its communicator after the deadline of rank ")) << last_error();
      return;
    }
    check(tnt_comm_set_timeout(comm, 0.2));
    check(tnt_comm_shrink(comm, &smaller));
    EXPECT_EQ(members_of(smaller, rank), (std::vector{0, 2}));
    EXPECT_EQ(tnt_comm_shrink(comm, &smaller), TNT_INVALID_ARGUMENT) << last_error();
    ++board->count;
  });
}

TEST(CommErrors, ATrainingGoesOnWithoutAKilledRank) {
  constexpr int ranks = 4;
  Shared<Board> board;
  ProcessJob job(ranks, [&](int rank) {
    const Joined joined;
    tnt_comm_t comm = returning(joined);
    const std::array<tnt_tensor_t, 2> tensors{tnt_tensor_t{"kernel", 5000, TNT_FLOAT32}, tnt_tensor_t{"bias", 10, TNT_FLOAT32}};
    std::array<std::vector<float>, 2> gradients{std::vector<float>(5000), std::vector<float>(10)};
    for (int life = 0; life < 2; ++life) {
      tnt_reducer_t reducer = nullptr;
      check(tnt_reducer_create(comm, tensors.data(), 2, nullptr, &reducer));
      for (int step = 0; life == 0 || step < 10; ++step) {
        for (std::size_t tensor = 0; tensor < 2; ++tensor) {
          std::fill(gradients.at(tensor).begin(), gradients.at(tensor).end(), static_cast<float>(rank + 1));
          float* const data = gradients.at(tensor).data();
          if (tnt_reducer_ready(reducer, tensor, data, data, 1, nullptr) != TNT_SUCCESS) break;
        }
        if (const tnt_status_t status = tnt_reducer_finish(reducer, nullptr); status != TNT_SUCCESS) {
          EXPECT_EQ(status, TNT_PEER_LOST) << last_error();
          EXPECT_EQ(life, 0);
          break;
        }
        EXPECT_EQ(gradients[0].back(), life == 0 ? 10 : 7);  // without rank 2
        ++board->rounds[0];
      }
      check(tnt_reducer_destroy(reducer));
      if (life == 1) break;
      tnt_comm_t smaller = nullptr;
      check(tnt_comm_shrink(comm, &smaller));
      check(tnt_comm_destroy(comm));
      comm = smaller;
    }
  });
  wait_for([&] { return board->rounds[0] > 40; });
  job.send(2, SIGKILL);
  const auto endings = job.wait();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(endings[static_cast<std::size_t>(rank)].code, rank == 2 ? -1 : 0) << "rank " << rank;
  }
}

}  // namespace
