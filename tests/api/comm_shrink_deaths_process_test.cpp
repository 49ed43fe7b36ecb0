// Ranks that die in tnt_comm_shrink: the others go on. The nodes are simulated, as in tcp_process_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/dying_calls.hpp"
#include "support/effort.hpp"
#include "support/growing.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/shrinking.hpp"

namespace {

using namespace tnt::testing;

// Shrinks until exactly these are members.
tnt_comm_t those_alive(tnt_comm_t comm, int rank, const std::vector<int>& alive) {
  std::vector<int> members;
  while (members.size() != alive.size()) {
    comm = shrunk(comm);
    int size = 0;
    check(tnt_comm_size(comm, &size));
    members.assign(static_cast<std::size_t>(size), -1);
    tnt_status_t status = tnt_all_gather(comm, &rank, members.data(), 1, TNT_INT32, nullptr, nullptr);
    while (status == TNT_SUCCESS && members.size() > alive.size()) status = tnt_barrier(comm, nullptr, nullptr);
    if (status != TNT_SUCCESS) members.clear();
  }
  EXPECT_EQ(members, alive);
  return comm;
}

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
    std::vector<int> alive = first_numbers(ranks);
    std::erase_if(alive, [&](int one) { return std::find(dying.begin(), dying.end(), one) != dying.end(); });
    Shared<Tally> board;
    ProcessJob job(
        ranks,
        [&](int rank) {
          const Returning world(rank, per_node);
          const auto own = static_cast<std::size_t>(std::find(dying.begin(), dying.end(), rank) - dying.begin());
          all_done(*board, ranks);
          if (own == 0) raise(SIGKILL);
          while (tnt_barrier(world.comm, nullptr, nullptr) == TNT_SUCCESS) continue;
          if (own < dying.size()) die_after(delays.at(own));
          const tnt_comm_t comm = those_alive(world.comm, rank, alive);
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

struct Witness {
  Tally tally;
  std::atomic<bool> lived_on{false};
};

struct Steps {
  const char* name;
  int ranks;
  int per_node;
  int first;   // lost before the shrink
  int second;  // lost in it
  int least;   // it makes so many calls at least
};
class KilledAtEachCallTest : public ::testing::TestWithParam<Steps> {};

// The second rank is killed before this call.
std::unique_ptr<ProcessJob> killed_at(int call, const Steps& steps, const std::vector<int>& alive, Shared<Witness>& board) {
  const ProcessJob::Body body = [&](int rank) {
    const Returning world(rank, steps.per_node);
    all_done(board->tally, steps.ranks);
    if (rank == steps.first) raise(SIGKILL);
    while (tnt_barrier(world.comm, nullptr, nullptr) == TNT_SUCCESS) continue;
    if (rank == steps.second) {
      die_before_call(call);
      (void)shrunk(world.comm);
      live_on();
      board->lived_on = true;
      raise(SIGKILL);
    }
    check(tnt_barrier(those_alive(world.comm, rank, alive), nullptr, nullptr));
  };
  return std::make_unique<ProcessJob>(steps.ranks, body, by_tcp());
}

// A rank is killed before the first system call of its shrink that others can see, then before the second, and so on. Several
// jobs at once: they wait most of the time.
TEST_P(KilledAtEachCallTest, TheOthersGoOn) {
  constexpr int at_once = 4;
  const Steps& steps = GetParam();
  std::vector<int> alive = first_numbers(steps.ranks);
  std::erase_if(alive, [&](int one) { return one == steps.first || one == steps.second; });
  const int each = effort(24, 4);  // by then the ranks have met; the calls that follow are of collectives
  int call = 0;
  int killed = 0;
  for (bool ended = false; !ended;) {
    std::array<Shared<Witness>, at_once> boards;
    std::array<int, at_once> calls{};
    std::vector<std::unique_ptr<ProcessJob>> jobs;
    for (std::size_t i = 0; i < boards.size(); ++i) {
      calls.at(i) = call;
      jobs.push_back(killed_at(call, steps, alive, boards.at(i)));
      call += 1 + std::max(call - each, 0) / 2;
    }
    for (std::size_t i = 0; i < boards.size(); ++i) {
      expect_codes(*jobs[i], {steps.first, steps.second});
      if (HasFailure()) FAIL() << "killed before call " << calls.at(i);
      ended = ended || boards.at(i)->lived_on;
      if (!ended) ++killed;
    }
  }
  EXPECT_GE(killed, steps.least) << "the calls were not seen";
}

const Steps all_steps[] = {{"LeaderByTcp", 4, 1, 2, 0, 10},
                           {"LastByTcp", 4, 1, 0, 3, 10},
                           {"MiddleOfTwoNodes", 6, 3, 0, 1, 10},
                           {"FirstOfANode", 3, 3, 1, 0, 1},
                           {"LastOfANode", 3, 3, 0, 2, 1}};
INSTANTIATE_TEST_SUITE_P(Calls, KilledAtEachCallTest, ::testing::ValuesIn(all_steps),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
