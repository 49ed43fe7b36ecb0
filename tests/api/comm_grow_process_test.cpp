// tnt_comm_grow: ranks of a communicator and processes that were started apart make a larger one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace {

using namespace tnt::testing;

std::string said() { return tnt_last_error(); }

// What the program passes on by means of its own.
struct Letters {
  std::array<tnt_unique_id_t, 4> ids{};
  std::atomic<int> n_ids{0};
  std::atomic<int> step{0};
};

void put_id(Letters& letters, const std::string& rendezvous = "") {
  check(tnt_unique_id(rendezvous.empty() ? nullptr : rendezvous.c_str(), &letters.ids.at(letters.n_ids)));
  ++letters.n_ids;
}

const tnt_unique_id_t* take_id(const Letters& letters, int index = 0) {
  wait_for([&] { return letters.n_ids > index; });
  return &letters.ids.at(static_cast<std::size_t>(index));
}

// The place of this process before it joins: one of the first ranks of a job, or a job by itself.
void be_member(int members) { setenv("TNT_SIZE", std::to_string(members).c_str(), 1); }
void be_alone() {
  for (const char* name : {"TNT_RANK", "TNT_SIZE", "TNT_RENDEZVOUS", "TNT_TOKEN"}) unsetenv(name);
}

std::vector<int> numbers_of(tnt_comm_t comm, int own) {
  int size = 0;
  check(tnt_comm_size(comm, &size));
  std::vector<int> all(static_cast<std::size_t>(size));
  check(tnt_all_gather(comm, &own, all.data(), 1, TNT_INT32, nullptr, nullptr));
  return all;
}

std::vector<int> first_numbers(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

int rank_of(tnt_comm_t comm) {
  int rank = -1;
  check(tnt_comm_rank(comm, &rank));
  return rank;
}

std::string transport_name_of(tnt_comm_t comm) {
  const char* name = nullptr;
  check(tnt_comm_transport(comm, &name));
  return name;
}

// A step of a reducer of the communicator.
void expect_a_step(tnt_comm_t comm, int size) {
  const tnt_tensor_t tensor{"weights", 1000, TNT_FLOAT32};
  tnt_reducer_t reducer = nullptr;
  check(tnt_reducer_create(comm, &tensor, 1, nullptr, &reducer));
  std::vector<float> gradient(1000, 1);
  check(tnt_reducer_ready(reducer, 0, gradient.data(), gradient.data(), 1, nullptr));
  check(tnt_reducer_finish(reducer, nullptr));
  EXPECT_EQ(gradient.back(), static_cast<float>(size));
  check(tnt_reducer_destroy(reducer));
}

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

// What those that are left of a job on a network do: each process is told its rank by what has started it.
TEST(CommGrow, AfterALossOnANetwork) {
  Shared<Letters> letters;
  const std::string place = tcp_rendezvous();
  ProcessJob job(
      4,
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
          EXPECT_EQ(tnt_comm_set_error_mode(world, TNT_ERRORS_RETURN), TNT_UNSUPPORTED);
          EXPECT_NE(said().find("meet in a new communicator by a unique id (tnt_comm_grow with comm NULL)"), std::string::npos)
              << said();
          check(tnt_barrier(world, nullptr, nullptr));
          if (process == 0) raise(SIGKILL);
          EXPECT_EQ(tnt_barrier(world, nullptr, nullptr), TNT_PEER_LOST);
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

// The call has changed nothing, and can be made again when the newcomer is there.
TEST(CommGrow, ANewcomerThatDoesNotComeIsNamed) {
  for (const std::string& place : {std::string(), tcp_rendezvous()}) {
    Shared<Letters> letters;
    run_processes(3, [&](int rank) {
      tnt_comm_t larger = nullptr;
      if (rank == 2) {
        be_alone();
        const Joined alone;
        wait_for([&] { return letters->step == 2; });
        check(tnt_comm_grow(nullptr, take_id(*letters), 3, rank, &larger));
        EXPECT_EQ(numbers_of(larger, rank), first_numbers(3));
        return;
      }
      be_member(2);
      const Joined job;
      if (rank == 0) put_id(*letters, place);
      check(tnt_comm_set_timeout(job.world, 0.5));
      EXPECT_EQ(tnt_comm_grow(job.world, rank == 0 ? take_id(*letters) : nullptr, 3, -1, &larger), TNT_TIMEOUT);
      EXPECT_EQ(said(), "rank 2 did not join within 0.5 s");
      EXPECT_EQ(larger, nullptr);
      check(tnt_comm_set_timeout(job.world, 40));
      check(tnt_barrier(job.world, nullptr, nullptr));
      ++letters->step;
      check(tnt_comm_grow(job.world, rank == 0 ? take_id(*letters) : nullptr, 3, -1, &larger));
      EXPECT_EQ(numbers_of(larger, rank), first_numbers(3));
    });
  }
}

TEST(CommGrow, AMemberThatDoesNotCallIsNamed) {
  Shared<Letters> letters;
  run_processes(3, [&](int rank) {
    const Joined job;
    tnt_comm_t part = nullptr;
    tnt_comm_t larger = nullptr;
    check(tnt_comm_split(job.world, 0, 0, &part));
    check(tnt_comm_set_error_mode(part, TNT_ERRORS_RETURN));
    if (rank == 0) put_id(*letters);
    if (rank != 1) {
      check(tnt_comm_set_timeout(part, 0.3));
      EXPECT_EQ(tnt_comm_grow(part, rank == 0 ? take_id(*letters) : nullptr, 5, -1, &larger), TNT_TIMEOUT);
      EXPECT_NE(said().find("rank 1 did not arrive within 0.3 s"), std::string::npos) << said();
      EXPECT_NE(said().find("tnt_comm_grow to 5 ranks"), std::string::npos) << said();
    }
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST(CommGrow, MembersThatDifferAreNamedAndNothingHasChanged) {
  Shared<Letters> letters;
  run_processes(3, [&](int rank) {
    const Joined job;
    tnt_comm_t larger = nullptr;
    if (rank == 0) put_id(*letters);
    EXPECT_EQ(tnt_comm_grow(job.world, rank == 0 ? take_id(*letters) : nullptr, rank == 2 ? 5 : 4, -1, &larger), TNT_MISMATCH);
    EXPECT_EQ(said(), "rank 0 of the communicator passed 4 ranks, rank 2 passed 5: all members must pass the same");
    tnt_unique_id_t other;
    check(tnt_unique_id(nullptr, &other));
    EXPECT_EQ(tnt_comm_grow(job.world, rank == 1 ? &other : take_id(*letters), 4, -1, &larger), TNT_MISMATCH);
    EXPECT_EQ(said(), "rank 1 of the communicator passed another id than rank 0: members pass the same, or NULL");
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

TEST(CommGrow, ANewcomerForAnotherNumberOfRanksIsNamed) {
  for (const std::string& place : {std::string(), tcp_rendezvous()}) {
    Shared<Letters> letters;
    run_processes(2, [&](int rank) {
      be_alone();
      const Joined alone;
      tnt_comm_t larger = nullptr;
      if (rank == 0) put_id(*letters, place);
      const tnt_comm_t comm = rank == 0 ? alone.world : nullptr;
      EXPECT_EQ(tnt_comm_grow(comm, take_id(*letters), rank == 0 ? 2 : 3, rank == 0 ? -1 : 1, &larger), TNT_MISMATCH);
      EXPECT_EQ(said(), "rank 1 was started for 3 ranks, rank 0 for 2");
      check(tnt_barrier(alone.world, nullptr, nullptr));
    });
  }
}

TEST(CommGrow, AnotherSecretIsSentAway) {
  Shared<Letters> letters;
  run_processes(2, [&](int rank) {
    be_alone();
    const Joined alone;
    tnt_comm_t larger = nullptr;
    if (rank == 0) {
      put_id(*letters);
      check(tnt_comm_set_timeout(alone.world, 3));
      EXPECT_EQ(tnt_comm_grow(alone.world, take_id(*letters), 2, -1, &larger), TNT_TIMEOUT);
      EXPECT_EQ(said(), "rank 1 did not join within 3 s; a process with another token came as rank 1");
    } else {
      tnt_unique_id_t guess = *take_id(*letters);
      char& last = guess.text[std::string(guess.text).size() - 1];
      last = last == '0' ? '1' : '0';
      EXPECT_EQ(tnt_comm_grow(nullptr, &guess, 2, rank, &larger), TNT_MISMATCH);
      EXPECT_NE(said().find("rank 1 has another token than rank 0"), std::string::npos) << said();
    }
  });
}

TEST(CommGrow, ANodeThatCannotBeReachedByTheIdIsSaid) {
  Shared<Letters> letters;
  run_processes(2,
                [&](int rank) {
                  setenv("TNT_INTERNAL_NODE", std::to_string(rank).c_str(), 1);
                  const Joined job;
                  tnt_comm_t larger = nullptr;
                  if (rank == 0) put_id(*letters);
                  EXPECT_EQ(tnt_comm_grow(job.world, take_id(*letters), 3, -1, &larger), TNT_INVALID_ARGUMENT);
                  EXPECT_NE(said().find("make it with tnt_unique_id(\"tcp://HOST:PORT\")"), std::string::npos) << said();
                  check(tnt_barrier(job.world, nullptr, nullptr));
                },
                {.environment = {{"TNT_RENDEZVOUS", tcp_rendezvous()}}});
}

// The two communicators have nothing in common, and errors name ranks of their own.
TEST(CommGrow, ErrorsStayWhereTheyAre) {
  Shared<Letters> letters;
  run_processes(3, [&](int rank) {
    if (rank == 2) {
      be_alone();
    } else {
      be_member(2);
    }
    const Joined job;
    std::array<tnt_comm_t, 2> larger{};
    for (int i = 0; i < 2; ++i) {
      if (rank == 0) put_id(*letters);
      const tnt_unique_id_t* const id = take_id(*letters, i);
      const bool is_newcomer = rank == 2;
      check(tnt_comm_grow(is_newcomer ? nullptr : job.world, id, 3, is_newcomer ? 2 : -1,
                          &larger.at(static_cast<std::size_t>(i))));
    }
    if (rank == 2) check(tnt_comm_abort(larger[0], "enough"));
    EXPECT_EQ(tnt_barrier(larger[0], nullptr, nullptr), TNT_ABORTED);
    EXPECT_EQ(said(), "rank 2: enough");
    check(tnt_barrier(job.world, nullptr, nullptr));
    check(tnt_barrier(larger[1], nullptr, nullptr));
    if (rank == 0) check(tnt_comm_abort(job.world, "as well"));
    EXPECT_EQ(tnt_barrier(job.world, nullptr, nullptr), rank == 2 ? TNT_SUCCESS : TNT_ABORTED);
    check(tnt_barrier(larger[1], nullptr, nullptr));
  });
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

int descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
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
