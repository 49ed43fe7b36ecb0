// tnt_comm_grow: ranks of a communicator and processes that were started apart make a larger one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
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

struct Growth {
  const char* name;
  int members;
  int newcomers;
  int per_node;           // 0: all are on this node, and meet without TCP
  const char* transport;  // of the larger communicator
};
class GrowTest : public ::testing::TestWithParam<Growth> {};

TEST_P(GrowTest, NewcomersAreRanks) {
  const Growth& growth = GetParam();
  const int size = growth.members + growth.newcomers;
  const std::string second_place = growth.per_node > 0 ? tcp_rendezvous() : "";
  ProcessOptions options;
  if (growth.per_node > 0) options.environment["TNT_RENDEZVOUS"] = tcp_rendezvous();
  Shared<Letters> letters;
  run_processes(
      size,
      [&](int rank) {
        if (growth.per_node > 0) setenv("TNT_INTERNAL_NODE", std::to_string(rank / growth.per_node).c_str(), 1);
        const bool is_member = rank < growth.members;
        if (is_member) {
          be_member(growth.members);
        } else {
          be_alone();
        }
        const Joined job;
        tnt_comm_t larger = nullptr;
        if (rank == 0) put_id(*letters, second_place);
        if (is_member) {
          check(tnt_comm_grow(job.world, rank == 0 ? take_id(*letters) : nullptr, size, -1, &larger));
        } else {
          check(tnt_comm_grow(nullptr, take_id(*letters), size, rank, &larger));
        }
        EXPECT_EQ(rank_of(larger), rank);
        EXPECT_EQ(transport_name_of(larger), growth.transport);
        EXPECT_EQ(numbers_of(larger, rank), first_numbers(size));
        expect_a_step(larger, size);
        tnt_comm_t part = nullptr;
        check(tnt_comm_split(larger, 0, -rank, &part));
        EXPECT_EQ(rank_of(part), size - 1 - rank);
        check(tnt_comm_destroy(part));
        check(tnt_barrier(larger, nullptr, nullptr));
        check(tnt_comm_destroy(larger));
        check(tnt_barrier(job.world, nullptr, nullptr));
        EXPECT_EQ(job.size, is_member ? growth.members : 1);
      },
      options);
}

const Growth growths[] = {{"OneAndOne", 1, 1, 0, "shm"},
                          {"TwoAndOne", 2, 1, 0, "shm"},
                          {"TwoAndTwo", 2, 2, 0, "shm"},
                          {"OneAndThree", 1, 3, 0, "shm"},
                          {"OneAndOneByTcp", 1, 1, 1, "tcp"},
                          {"TwoAndTwoByTcp", 2, 2, 1, "tcp"},
                          {"TwoAndTwoNodes", 2, 2, 2, "hierarchical"},
                          {"OneNodeByTcp", 2, 1, 3, "shm"}};
INSTANTIATE_TEST_SUITE_P(Growths, GrowTest, ::testing::ValuesIn(growths),
                         [](const auto& info) { return std::string(info.param.name); });

// Rank 1 of the first three is killed; those alive go on, and a newcomer takes its place.
TEST(CommGrow, AfterALoss) {
  Shared<Letters> letters;
  ProcessJob job(4, [&](int process) {
    tnt_comm_t larger = nullptr;
    if (process == 3) {
      be_alone();
      const Joined alone;
      check(tnt_comm_grow(nullptr, take_id(*letters), 3, 2, &larger));
      EXPECT_EQ(numbers_of(larger, process), (std::vector{0, 2, 3}));
      expect_a_step(larger, 3);
      return;
    }
    be_member(3);
    const Joined joined;
    tnt_comm_t comm = nullptr;
    tnt_comm_t smaller = nullptr;
    check(tnt_comm_split(joined.world, 0, 0, &comm));
    check(tnt_comm_set_error_mode(comm, TNT_ERRORS_RETURN));
    if (process == 1) raise(SIGKILL);
    EXPECT_EQ(tnt_barrier(comm, nullptr, nullptr), TNT_PEER_LOST);
    check(tnt_comm_shrink(comm, &smaller));
    if (process == 0) put_id(*letters);
    check(tnt_comm_grow(smaller, process == 0 ? take_id(*letters) : nullptr, 3, -1, &larger));
    check(tnt_comm_destroy(comm));
    check(tnt_comm_destroy(smaller));
    EXPECT_EQ(numbers_of(larger, process), (std::vector{0, 2, 3}));
    expect_a_step(larger, 3);
  });
  const auto endings = job.wait();
  for (std::size_t process = 0; process < 4; ++process) {
    EXPECT_EQ(endings[process].code, process == 1 ? -1 : 0) << "process " << process;
  }
}

// The ranks that are left of a job on a network meet anew: the program that started them tells each its new rank.
TEST(CommGrow, AfterALossOnANetwork) {
  Shared<Letters> letters;
  const std::string place = tcp_rendezvous();
  ProcessJob job(4,
                 [&](int process) {
                   setenv("TNT_INTERNAL_NODE", std::to_string(process).c_str(), 1);
                   tnt_comm_t next = nullptr;
                   const int ranks[] = {-1, 0, 1, 2};
                   if (process == 3) {
                     be_alone();
                   } else {
                     be_member(3);
                   }
                   check(tnt_init(nullptr));
                   if (process < 3) {
                     tnt_comm_t world = nullptr;
                     check(tnt_comm_world(&world));
                     check(tnt_barrier(world, nullptr, nullptr));
                     if (process == 0) raise(SIGKILL);
                     EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_PEER_LOST);
                     EXPECT_EQ(tnt_comm_shrink(world, &next), TNT_INVALID_ARGUMENT);
                   }
                   if (process == 1) put_id(*letters, place);
                   check(tnt_comm_grow(nullptr, take_id(*letters), 3, ranks[process], &next));
                   EXPECT_EQ(transport_name_of(next), "tcp");
                   EXPECT_EQ(numbers_of(next, process), (std::vector{1, 2, 3}));
                   expect_a_step(next, 3);
                   EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << said();
                 },
                 {.environment = {{"TNT_RENDEZVOUS", tcp_rendezvous()}}});
  const auto endings = job.wait();
  for (std::size_t process = 0; process < 4; ++process) {
    EXPECT_EQ(endings[process].code, process == 0 ? -1 : 0) << "process " << process;
  }
}

void kill_this_process_after(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    kill(getpid(), SIGKILL);
  }).detach();
}

// At a moment of its own. The others get an error, here or in their first call; they go on, and take another newcomer.
TEST(CommGrow, ANewcomerDiesWhileItJoins) {
  for (int attempt = 0; attempt < effort(12, 4); ++attempt) {
    const bool by_tcp = attempt % 2 == 1;
    const std::array<std::string, 2> places{by_tcp ? tcp_rendezvous() : "", by_tcp ? tcp_rendezvous() : ""};
    std::mt19937 random(static_cast<unsigned>(attempt));
    const std::chrono::microseconds delay(random() % 4000);
    Shared<Letters> letters;
    ProcessJob job(4, [&](int process) {
      tnt_comm_t larger = nullptr;
      if (process >= 2) {
        be_alone();
        const Joined alone;
        const tnt_unique_id_t* const id = take_id(*letters, process - 2);
        if (process == 2) kill_this_process_after(delay);
        const tnt_status_t status = tnt_comm_grow(nullptr, id, 3, 2, &larger);
        if (process == 2) pause();
        check(status);
        EXPECT_EQ(numbers_of(larger, process), (std::vector{0, 1, 3}));
        return;
      }
      be_member(2);
      const Joined joined;
      check(tnt_comm_set_timeout(joined.world, 1));
      if (process == 0) put_id(*letters, places[0]);
      const tnt_unique_id_t* const first = process == 0 ? take_id(*letters) : nullptr;
      if (tnt_comm_grow(joined.world, first, 3, -1, &larger) == TNT_SUCCESS) {
        while (tnt_barrier(larger, nullptr, nullptr) == TNT_SUCCESS) continue;
        check(tnt_comm_destroy(larger));
      }
      check(tnt_comm_set_timeout(joined.world, 40));
      check(tnt_barrier(joined.world, nullptr, nullptr));
      if (process == 0) put_id(*letters, places[1]);
      const tnt_unique_id_t* const second = process == 0 ? take_id(*letters, 1) : nullptr;
      check(tnt_comm_grow(joined.world, second, 3, -1, &larger));
      EXPECT_EQ(numbers_of(larger, process), (std::vector{0, 1, 3}));
    });
    const auto endings = job.wait();
    for (std::size_t process = 0; process < 4; ++process) {
      EXPECT_EQ(endings[process].code, process == 2 ? -1 : 0) << "process " << process << ", attempt " << attempt;
    }
  }
}

TEST(CommGrow, ARankThatExitsHasLeft) {
  for (const std::string& place : {std::string(), tcp_rendezvous()}) {
    Shared<Letters> letters;
    run_processes(2, [&](int rank) {
      setenv("TNT_INTERNAL_NODE", std::to_string(place.empty() ? 0 : rank).c_str(), 1);
      be_alone();
      check(tnt_init(nullptr));
      tnt_comm_t larger = nullptr;
      if (rank == 0) put_id(*letters, place);
      check(tnt_comm_grow(nullptr, take_id(*letters), 2, rank, &larger));
      if (rank == 1) std::exit(0);  // without tnt_finalize
      EXPECT_EQ(tnt_barrier(larger, nullptr, nullptr), TNT_PEER_LOST);
      EXPECT_NE(said().find("rank 1 left the job"), std::string::npos) << said();
      check(tnt_finalize());
    });
  }
}

// A rank of three comes and goes, again and again.
TEST(CommGrow, NothingIsLeftOfWhatWasDestroyed) {
  for (const std::string& place : {std::string(), tcp_rendezvous()}) {
    Shared<Letters> letters;
    run_processes(3, [&](int rank) {
      if (rank == 2) {
        be_alone();
      } else {
        be_member(2);
      }
      const Joined job;
      if (rank == 0) put_id(*letters, place);
      int before = 0;
      for (int round = 0; round < 12; ++round) {
        tnt_comm_t larger = nullptr;
        check(tnt_comm_grow(rank == 2 ? nullptr : job.world, take_id(*letters), 3, rank == 2 ? 2 : -1, &larger));
        EXPECT_EQ(numbers_of(larger, rank), first_numbers(3));
        check(tnt_comm_destroy(larger));
        if (round == 1) before = descriptors();
      }
      EXPECT_EQ(descriptors(), before);
    });
  }
}

}  // namespace
