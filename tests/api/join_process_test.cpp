// Processes that cannot join: each gets the reason, none waits forever.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>

#include "support/joined.hpp"
#include "support/process_ranks.hpp"

namespace {

using namespace tnt::testing;

struct Trouble {
  const char* name;
  const char* timeout;
  std::function<void()> disturb;  // rank 1 of 3, before it joins
  tnt_status_t status;            // seen by ranks 0 and 2
  const char* message;
  tnt_status_t own_status;  // seen by rank 1, if it lives that long
  const char* own_message;
};
class JoinTest : public ::testing::TestWithParam<Trouble> {};

TEST_P(JoinTest, IsExplainedToAll) {
  const Trouble& trouble = GetParam();
  run_processes(3,
                [&](int rank) {
                  if (rank == 1) trouble.disturb();
                  EXPECT_EQ(tnt_init(nullptr), rank == 1 ? trouble.own_status : trouble.status) << "rank " << rank;
                  EXPECT_STREQ(tnt_last_error(), rank == 1 ? trouble.own_message : trouble.message) << "rank " << rank;
                  tnt_comm_t world = nullptr;
                  EXPECT_EQ(tnt_comm_world(&world), TNT_INVALID_ARGUMENT);
                  EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
                },
                {.environment = {{"TNT_TIMEOUT", trouble.timeout}}});
}

const Trouble troubles[] = {
    {"NeverComes", "1", [] { _exit(0); }, TNT_TIMEOUT, "rank 1 did not join within 1 s", TNT_SUCCESS, ""},
    {"WrongToken", "1", [] { setenv("TNT_TOKEN", "guess", 1); }, TNT_TIMEOUT,
     "rank 1 did not join within 1 s; a process with another token came as rank 1", TNT_MISMATCH,
     "rank 1 has another token than rank 0: give all ranks the same (TNT_TOKEN, or tnt_init_options_t.token)"},
    {"SameRankTwice", "30", [] { setenv("TNT_RANK", "2", 1); }, TNT_MISMATCH, "two processes claim to be rank 2", TNT_MISMATCH,
     "two processes claim to be rank 2"},
    {"WrongSize", "30", [] { setenv("TNT_SIZE", "4", 1); }, TNT_MISMATCH, "rank 1 was started for 4 ranks, rank 0 for 3",
     TNT_MISMATCH, "rank 1 was started for 4 ranks, rank 0 for 3"},
    {"RankBeyond", "1",
     [] {
       setenv("TNT_RANK", "3", 1);
       setenv("TNT_SIZE", "4", 1);
     },
     TNT_TIMEOUT, "rank 1 did not join within 1 s", TNT_MISMATCH, "rank 3 is not a rank of this job of 3"},
    {"NoToken", "1", [] { unsetenv("TNT_TOKEN"); }, TNT_TIMEOUT, "rank 1 did not join within 1 s", TNT_INVALID_ARGUMENT,
     "TNT_SIZE=3 without TNT_RENDEZVOUS and TNT_TOKEN: start the ranks with `tarantella -n 3 -- script.py`, or `tnt-run -n 3 "
     "-- PROGRAM`"},
    {"NoRank", "1", [] { unsetenv("TNT_RANK"); }, TNT_TIMEOUT, "rank 1 did not join within 1 s", TNT_INVALID_ARGUMENT,
     "TNT_SIZE=3 without TNT_RANK: give each rank its own, from 0"},
    {"AnAddressWithoutTcp", "1", [] { setenv("TNT_RENDEZVOUS", "localhost:29500", 1); }, TNT_TIMEOUT,
     "rank 1 did not join within 1 s", TNT_INVALID_ARGUMENT,
     "TNT_RENDEZVOUS=localhost:29500: expected tcp://HOST:PORT, or a word without a colon for ranks of one node"},
    {"NoFolderForTheTimeline", "1", [] { setenv("TNT_TIMELINE", "/nonexistent/trace.json", 1); }, TNT_TIMEOUT,
     "rank 1 did not join within 1 s", TNT_SYSTEM,
     "TNT_TIMELINE: cannot open /nonexistent/trace.json: No such file or directory"}};
INSTANTIATE_TEST_SUITE_P(Troubles, JoinTest, ::testing::ValuesIn(troubles),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Join, WithoutRankZeroItIsNamed) {
  run_processes(3,
                [](int rank) {
                  if (rank == 0) return;
                  EXPECT_EQ(tnt_init(nullptr), TNT_TIMEOUT);
                  EXPECT_STREQ(tnt_last_error(), "rank 0 did not join within 1 s");
                },
                {.environment = {{"TNT_TIMEOUT", "1"}}});
}

TEST(Join, AFailureMayBeFollowedByAnotherTry) {
  run_processes(2, [](int rank) {
    if (rank == 1) {
      setenv("TNT_SIZE", "3", 1);
      EXPECT_EQ(tnt_init(nullptr), TNT_MISMATCH);
      setenv("TNT_SIZE", "2", 1);
    } else {
      EXPECT_EQ(tnt_init(nullptr), TNT_MISMATCH);
    }
    const Joined job;
    check(tnt_barrier(job.world, nullptr, nullptr));
  });
}

}  // namespace
