// tnt_comm_shrink over TCP: those that are alive meet anew. The nodes are simulated, as in tcp_process_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/effort.hpp"
#include "support/growing.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace {

using namespace tnt::testing;

ProcessOptions by_tcp() { return {.environment = {{"TNT_RENDEZVOUS", tcp_rendezvous()}, {"TNT_TIMEOUT", "30"}}}; }

// Joins, with so many consecutive ranks on each node, and makes the world's errors returned.
struct Returning {
  Returning(int rank, int per_node) {
    setenv("TNT_INTERNAL_NODE", std::to_string(rank / per_node).c_str(), 1);
    check(tnt_init(nullptr));
    check(tnt_comm_world(&comm));
    check(tnt_comm_set_error_mode(comm, TNT_ERRORS_RETURN));
  }
  Returning(const Returning&) = delete;
  Returning& operator=(const Returning&) = delete;
  ~Returning() { EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << said(); }
  tnt_comm_t comm = nullptr;
};

tnt_comm_t shrunk(tnt_comm_t comm) {
  tnt_comm_t smaller = nullptr;
  check(tnt_comm_shrink(comm, &smaller));
  return smaller;
}

double sum_of(tnt_comm_t comm, int rank) {
  std::vector<double> values(3000, rank + 1);
  check(tnt_all_reduce(comm, values.data(), values.data(), values.size(), TNT_FLOAT64, TNT_SUM, nullptr, nullptr));
  return values.back();
}

void expect_members(tnt_comm_t comm, int rank, const std::vector<int>& members) {
  EXPECT_EQ(numbers_of(comm, rank), members);
  double expected = 0;
  for (const int member : members) expected += member + 1;
  EXPECT_EQ(sum_of(comm, rank), expected);
}

struct Tally {
  std::atomic<int> here{0};
  std::atomic<int> done{0};
  std::atomic<int> stopped{0};
};

void arrive(std::atomic<int>& arrived, int ranks) {
  ++arrived;
  wait_for([&] { return arrived >= ranks; });
}

// A rank that is killed with data that it has not read takes back what it has sent, so it waits until the others have all.
void all_done(Tally& board, int ranks) { arrive(board.done, ranks); }

// No rank is in an earlier call of the communicator any more: a shrink would end it.
void all_here(Tally& board, int ranks) { arrive(board.here, ranks); }

void expect_codes(ProcessJob& job, const std::vector<int>& killed) {
  const auto endings = job.wait();
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    const bool is_killed = std::find(killed.begin(), killed.end(), static_cast<int>(rank)) != killed.end();
    EXPECT_EQ(endings[rank].signal, is_killed ? SIGKILL : 0) << "rank " << rank;
    EXPECT_EQ(endings[rank].code, is_killed ? -1 : 0) << "rank " << rank;
  }
}

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

void die_after(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    kill(getpid(), SIGKILL);
  }).detach();
}

struct Meeting {
  const char* name;
  int ranks;
  int per_node;
};
class KilledWhileTheyMeetTest : public ::testing::TestWithParam<Meeting> {};

// Two ranks die at moments of their own in the shrink. The others shrink until they are alone with those alive.
TEST_P(KilledWhileTheyMeetTest, TheOthersAgree) {
  const auto [name, ranks, per_node] = GetParam();
  for (int attempt = 0; attempt < effort(8, 3); ++attempt) {
    const std::array<int, 3> dying{attempt % ranks, (attempt + 1) % ranks, (attempt + 1 + ranks / 2) % ranks};
    std::mt19937 random(static_cast<unsigned>(attempt));
    const std::array<std::chrono::microseconds, 3> delays{std::chrono::microseconds(0),
                                                          std::chrono::microseconds(random() % 12'000),
                                                          std::chrono::microseconds(random() % 60'000)};
    Shared<Tally> board;
    ProcessJob job(
        ranks,
        [&](int rank) {
          const Returning world(rank, per_node);
          tnt_comm_t comm = world.comm;
          const auto own = static_cast<std::size_t>(std::find(dying.begin(), dying.end(), rank) - dying.begin());
          all_done(*board, ranks);
          if (own == 0) raise(SIGKILL);
          while (tnt_barrier(comm, nullptr, nullptr) == TNT_SUCCESS) continue;
          if (own < dying.size()) die_after(delays.at(own));
          const auto alive = static_cast<std::size_t>(ranks) - dying.size() + (dying[1] == dying[2] ? 1 : 0);
          std::vector<int> members;
          while (members.size() != alive) {
            comm = shrunk(comm);
            int size = 0;
            check(tnt_comm_size(comm, &size));
            members.assign(static_cast<std::size_t>(size), -1);
            tnt_status_t status = tnt_all_gather(comm, &rank, members.data(), 1, TNT_INT32, nullptr, nullptr);
            while (status == TNT_SUCCESS && members.size() > alive) status = tnt_barrier(comm, nullptr, nullptr);
            if (status != TNT_SUCCESS) members.clear();
          }
          for (const int member : members) EXPECT_TRUE(std::find(dying.begin(), dying.end(), member) == dying.end());
          check(tnt_barrier(comm, nullptr, nullptr));
        },
        by_tcp());
    expect_codes(job, {dying[0], dying[1], dying[2]});
    if (HasFailure()) FAIL() << name << ", attempt " << attempt;
  }
}

const Meeting meetings[] = {{"FourByTcp", 4, 1}, {"EightByTcp", 8, 1}, {"TwoNodes", 8, 4}, {"ThreeNodes", 6, 2}};
INSTANTIATE_TEST_SUITE_P(Meetings, KilledWhileTheyMeetTest, ::testing::ValuesIn(meetings),
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
