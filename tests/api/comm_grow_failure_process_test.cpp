// Failures of tnt_comm_grow: all ranks name them, and nothing has changed.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "support/growing.hpp"
#include "support/joined.hpp"
#include "support/process_ranks.hpp"
#include "support/tcp_ports.hpp"

namespace {

using namespace tnt::testing;

// The call has changed nothing, and can be made again when the newcomer is there.
TEST(CommGrowFailure, ANewcomerThatDoesNotComeIsNamed) {
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

TEST(CommGrowFailure, AMemberThatDoesNotCallIsNamed) {
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

TEST(CommGrowFailure, MembersThatDifferAreNamedAndNothingHasChanged) {
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

TEST(CommGrowFailure, ANewcomerForAnotherNumberOfRanksIsNamed) {
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

TEST(CommGrowFailure, AnotherSecretIsSentAway) {
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

TEST(CommGrowFailure, ANodeThatCannotBeReachedByTheIdIsSaid) {
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
TEST(CommGrowFailure, ErrorsStayWhereTheyAre) {
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

}  // namespace
