// tnt_comm_shrink over TCP: those that are alive meet anew. The nodes are simulated, as in tcp_process_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/growing.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/shrinking.hpp"

namespace {

using namespace tnt::testing;

struct Losses {
  const char* name;
  int ranks;
  int per_node;
  std::vector<std::vector<int>> kills;  // at once, then after the shrink, ...
  const char* transport;                // in the end
};
class ShrinkTest : public ::testing::TestWithParam<Losses> {};

TEST_P(ShrinkTest, ThoseAliveGoOn) {
  const Losses& losses = GetParam();
  std::vector<int> killed;
  for (const auto& one : losses.kills) killed.insert(killed.end(), one.begin(), one.end());
  Shared<Tally> board;
  ProcessJob job(
      losses.ranks,
      [&](int rank) {
        const Returning world(rank, losses.per_node);
        tnt_comm_t comm = world.comm;
        std::vector<int> alive = first_numbers(losses.ranks);
        int done = 0;
        for (const std::vector<int>& dying : losses.kills) {
          expect_members(comm, rank, alive);
          all_done(*board, done += static_cast<int>(alive.size()));
          if (std::find(dying.begin(), dying.end(), rank) != dying.end()) raise(SIGKILL);
          EXPECT_EQ(tnt_barrier(comm, nullptr, nullptr), TNT_PEER_LOST) << said();
          const tnt_comm_t smaller = shrunk(comm);
          if (comm != world.comm) check(tnt_comm_destroy(comm));
          comm = smaller;
          std::erase_if(alive, [&](int one) { return std::find(dying.begin(), dying.end(), one) != dying.end(); });
        }
        EXPECT_EQ(transport_name_of(comm), losses.transport);
        expect_members(comm, rank, alive);
        expect_a_step(comm, static_cast<int>(alive.size()));
        check(tnt_barrier(comm, nullptr, nullptr));
      },
      by_tcp());
  expect_codes(job, killed);
}

const Losses all_losses[] = {{"LastOfTwo", 2, 1, {{1}}, "local"},
                             {"FirstOfTwo", 2, 1, {{0}}, "local"},
                             {"FirstOfThree", 3, 1, {{0}}, "tcp"},
                             {"AllButOneOfFour", 4, 1, {{0, 1, 3}}, "local"},
                             {"OneAfterAnother", 4, 1, {{2}, {0}, {3}}, "local"},
                             {"SeveralOfEight", 8, 1, {{1, 4, 7}, {0}}, "tcp"},
                             {"OneOfTwoNodes", 4, 2, {{1}}, "hierarchical"},
                             {"FirstOfTwoNodes", 8, 4, {{0}, {4, 5}}, "hierarchical"},
                             {"ToOneNode", 4, 2, {{0}, {1}, {3}}, "local"},
                             {"ANode", 4, 2, {{0, 1}, {2}}, "local"},
                             {"ANodeOfEight", 8, 4, {{0, 1, 2, 3}, {6}}, "shm"}};
INSTANTIATE_TEST_SUITE_P(Losses, ShrinkTest, ::testing::ValuesIn(all_losses),
                         [](const auto& info) { return std::string(info.param.name); });

// Stops its own process until the test lets it go on.
void stop_here(Tally& board) {
  ++board.stopped;
  raise(SIGSTOP);
}

struct Stops {
  const char* name;
  int ranks;
  std::vector<int> stopped;
  bool goes_on;  // the others; else those that were stopped can, later
};
class SilentTest : public ::testing::TestWithParam<Stops> {};

TEST_P(SilentTest, MoreThanHalfGoOn) {
  const Stops& stops = GetParam();
  Shared<Tally> board;
  std::vector<int> alive = first_numbers(stops.ranks);
  std::erase_if(alive,
                [&](int one) { return std::find(stops.stopped.begin(), stops.stopped.end(), one) != stops.stopped.end(); });
  ProcessJob job(
      stops.ranks,
      [&](int rank) {
        const Returning world(rank, 1);
        check(tnt_comm_set_timeout(world.comm, 3));  // beside sanitizers and others on few cores
        all_here(*board, stops.ranks);
        const bool is_stopped = std::find(alive.begin(), alive.end(), rank) == alive.end();
        tnt_comm_t smaller = nullptr;
        if (is_stopped) stop_here(*board);
        wait_for([&] { return board->stopped == static_cast<int>(stops.stopped.size()); });
        const tnt_status_t status = tnt_comm_shrink(world.comm, &smaller);
        if (is_stopped == stops.goes_on) {
          EXPECT_EQ(status, TNT_TIMEOUT) << said();
          EXPECT_NE(said().find(" came to the shrink of "), std::string::npos) << said();
          EXPECT_EQ(tnt_comm_shrink(world.comm, &smaller), TNT_INVALID_ARGUMENT);
        } else {
          check(status);
          expect_members(smaller, rank, is_stopped ? stops.stopped : alive);
        }
        ++board->done;
        wait_for([&] { return board->done == stops.ranks; });
      },
      by_tcp());
  wait_for([&] { return board->done == static_cast<int>(alive.size()); });
  for (const int rank : stops.stopped) job.send(rank, SIGCONT);
  expect_codes(job, {});
}

const Stops all_stops[] = {{"LastOfTwo", 2, {1}, true},
                           {"FirstOfTwo", 2, {0}, false},
                           {"FirstOfThree", 3, {0}, true},
                           {"TieWithTheFirst", 4, {1, 2}, true},
                           {"TieWithoutTheFirst", 4, {0, 1}, false},
                           {"TooFew", 8, {1, 2, 3, 4, 5}, false}};
INSTANTIATE_TEST_SUITE_P(Stops, SilentTest, ::testing::ValuesIn(all_stops),
                         [](const auto& info) { return std::string(info.param.name); });

// The others answer it when they meet once more.
TEST(CommShrink, ALateRankLearnsThatTheOthersHaveGoneOn) {
  Shared<Tally> board;
  ProcessJob job(
      4,
      [&](int rank) {
        const Returning world(rank, 1);
        all_here(*board, 4);
        tnt_comm_t next = nullptr;
        if (rank == 1) {
          wait_for([&] { return board->done == 3; });
          ++board->done;
          EXPECT_EQ(tnt_comm_shrink(world.comm, &next), TNT_TIMEOUT);
          EXPECT_NE(said().find("the others go on without it"), std::string::npos) << said();
          return;
        }
        check(tnt_comm_set_timeout(world.comm, 3));
        const tnt_comm_t smaller = shrunk(world.comm);
        check(tnt_comm_set_timeout(smaller, 30));
        expect_members(smaller, rank, {0, 2, 3});
        ++board->done;
        wait_for([&] { return board->done == 4; });
        sleep(1);  // the late rank is in its shrink
        if (rank == 3) raise(SIGKILL);
        EXPECT_EQ(tnt_barrier(smaller, nullptr, nullptr), TNT_PEER_LOST);
        expect_members(shrunk(smaller), rank, {0, 2});
      },
      by_tcp());
  expect_codes(job, {3});
}

TEST(CommShrink, APartOfTheRanksMeetsByItself) {
  Shared<Tally> board;
  ProcessJob job(
      4,
      [&](int rank) {
        setenv("TNT_INTERNAL_NODE", std::to_string(rank).c_str(), 1);
        const Joined world;
        tnt_comm_t part = nullptr;
        check(tnt_comm_split(world.world, rank % 2, -rank, &part));  // 3, 1 and 2, 0
        check(tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN));
        all_done(*board, 4);
        if (rank == 1) raise(SIGKILL);
        EXPECT_EQ(tnt_barrier(world.world, nullptr, nullptr), TNT_PEER_LOST);
        expect_members(shrunk(part), rank, rank == 3 ? std::vector{3} : std::vector{2, 0});
      },
      by_tcp());
  expect_codes(job, {1});
}

TEST(CommShrink, AForkKeepsNoListenerOpen) {
  Shared<Tally> board;
  ProcessJob job(
      2,
      [&](int rank) {
        const Returning world(rank, 1);
        all_done(*board, 2);
        if (rank == 0) {
          if (fork() == 0) sleep(8), _exit(0);
          raise(SIGKILL);
        }
        EXPECT_EQ(tnt_barrier(world.comm, nullptr, nullptr), TNT_PEER_LOST);
        expect_members(shrunk(world.comm), rank, {1});
      },
      by_tcp());
  expect_codes(job, {0});
}

TEST(CommShrink, NothingIsLeftOfWhatWasDestroyed) {
  Shared<Tally> board;
  run_processes(
      3,
      [&](int rank) {
        setenv("TNT_INTERNAL_NODE", std::to_string(rank).c_str(), 1);
        const Joined job;
        int before = 0;
        for (int round = 0; round < 4; ++round) {
          tnt_comm_t comm = nullptr;
          check(tnt_comm_split(job.world, 0, 0, &comm));
          if (round == 1) before = descriptors();
          check(tnt_comm_set_error_mode(comm, TNT_ERRORS_RETURN));
          if (round % 2 == 1) check(tnt_comm_set_error_mode(comm, TNT_ERRORS_END_JOB));
          check(tnt_comm_destroy(comm));
        }
        EXPECT_EQ(descriptors(), before);
        tnt_comm_t comm = nullptr;
        check(tnt_comm_split(job.world, 0, 0, &comm));
        check(tnt_comm_set_error_mode(comm, TNT_ERRORS_RETURN));
        for (int round = 0; round < 6; ++round) {  // nobody has died: all meet, again and again
          all_here(*board, 3 * (round + 1));
          const tnt_comm_t same = shrunk(comm);
          check(tnt_comm_destroy(comm));
          comm = same;
          expect_members(comm, rank, {0, 1, 2});
          if (round == 1) before = descriptors();
        }
        check(tnt_barrier(comm, nullptr, nullptr));
        EXPECT_EQ(descriptors(), before);
      },
      by_tcp());
}

}  // namespace
