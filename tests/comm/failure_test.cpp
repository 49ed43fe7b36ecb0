// Collectives that cannot complete: every rank gets the same message, which names the rank and the call.
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <thread>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::common_error;

float buffer[8][4096];  // for each rank; the values do not matter

void all_reduce(Communicator& comm, std::size_t count, tnt_dtype_t dtype = TNT_FLOAT32, tnt_op_t op = TNT_SUM) {
  float* own = buffer[comm.rank()];
  const TensorView view{.in = own, .out = own, .count = count};
  all_reduce(comm, tnt::FusedBuffer({&view, 1}, dtype), op, call());
}
void all_gather(Communicator& comm, std::size_t count) {
  all_gather(comm, buffer[comm.rank()], buffer[comm.rank()], count, TNT_INT8, call());
}
void broadcast(Communicator& comm, int root) {
  broadcast(comm, buffer[comm.rank()], buffer[comm.rank()], 5, TNT_FLOAT32, root, call());
}

struct Difference {
  const char* name;
  std::function<void(Communicator&)> others;  // the call of all other ranks
  std::function<void(Communicator&)> odd;     // the call of one rank
  const char* message;
};

class MismatchTest : public ::testing::TestWithParam<Difference> {};

TEST_P(MismatchTest, IsTheSameErrorOnAllRanks) {
  const Difference& difference = GetParam();
  for (const int ranks : {2, 5}) {
    const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
      for (int i = 0; i < 3; ++i) all_reduce(comm, 4);
      const bool odd = comm.rank() == comm.size() - 1;
      (odd ? difference.odd : difference.others)(comm);
      barrier(comm, call());
    });
    const std::string expected = fmt::format("rank {} called {} (call 4 of their communicator)", ranks - 1, difference.message);
    // a rank that arrives before rank 0 compares with the first rank that has arrived
    const std::string compared = std::regex_replace(message, std::regex("while rank [0-9] called"), "while rank 0 called");
    EXPECT_EQ(compared.substr(0, expected.size()), expected);
  }
}

const Difference differences[] = {
    {"Collective", [](auto& comm) { all_reduce(comm, 10); }, [](auto& comm) { barrier(comm, call()); },
     "barrier while rank 0 called all_reduce sum of 10 float32"},
    {"Count", [](auto& comm) { all_reduce(comm, 10); }, [](auto& comm) { all_reduce(comm, 11); },
     "all_reduce sum of 11 float32 while rank 0 called all_reduce sum of 10 float32"},
    {"CountOfAnotherPath", [](auto& comm) { all_reduce(comm, 4000); }, [](auto& comm) { all_reduce(comm, 1); },
     "all_reduce sum of 1 float32 while rank 0 called all_reduce sum of 4000 float32"},
    {"Dtype", [](auto& comm) { all_reduce(comm, 10); }, [](auto& comm) { all_reduce(comm, 10, TNT_INT32); },
     "all_reduce sum of 10 int32 while rank 0 called all_reduce sum of 10 float32"},
    {"Operation", [](auto& comm) { all_reduce(comm, 10); }, [](auto& comm) { all_reduce(comm, 10, TNT_FLOAT32, TNT_MAX); },
     "all_reduce max of 10 float32 while rank 0 called all_reduce sum of 10 float32"},
    {"Root", [](auto& comm) { broadcast(comm, 0); }, [](auto& comm) { broadcast(comm, 1); },
     "broadcast of 5 float32 from rank 1 while rank 0 called broadcast of 5 float32 from rank 0"},
    {"CountOfGather", [](auto& comm) { all_gather(comm, 6); }, [](auto& comm) { all_gather(comm, 7); },
     "all_gather of 7 int8 while rank 0 called all_gather of 6 int8"},
    {"RootOfReduce",
     [](auto& comm) { reduce(comm, buffer[comm.rank()], buffer[comm.rank()], 5, TNT_INT8, TNT_MAX, 0, call()); },
     [](auto& comm) { reduce(comm, buffer[comm.rank()], buffer[comm.rank()], 5, TNT_INT8, TNT_MAX, 1, call()); },
     "reduce max of 5 int8 to rank 1 while rank 0 called reduce max of 5 int8 to rank 0"},
    {"GatherAndScatter", [](auto& comm) { gather(comm, nullptr, nullptr, 0, TNT_INT8, 0, call()); },
     [](auto& comm) { scatter(comm, nullptr, nullptr, 0, TNT_INT8, 0, call()); },
     "scatter of 0 int8 from rank 0 while rank 0 called gather of 0 int8 to rank 0"},
    {"ReduceScatter", [](auto& comm) { reduce_scatter(comm, nullptr, nullptr, 0, TNT_INT8, TNT_MIN, call()); },
     [](auto& comm) { all_gather(comm, 0); }, "all_gather of 0 int8 while rank 0 called reduce_scatter min of 0 int8"}};
INSTANTIATE_TEST_SUITE_P(Kinds, MismatchTest, ::testing::ValuesIn(differences),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Failure, OtherCountsOfRanksAreNamed) {
  for (const int ranks : {2, 5}) {
    const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
      std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 3);
      if (comm.rank() == comm.size() - 1) std::swap(++counts[0], --counts[1]);
      std::vector<std::int8_t> in(10);
      std::vector<std::int8_t> out(100);
      all_gather_v(comm, in.data(), out.data(), counts, TNT_INT8, call());
      barrier(comm, call());
    });
    EXPECT_NE(message.find(fmt::format("called all_gather_v of {} int8 with different counts of the ranks", 3 * ranks)),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(fmt::format("rank {}", ranks - 1)), std::string::npos) << message;
  }
}

TEST(Failure, ABlockOfAnotherSizeIsNamed) {
  for (const int ranks : {2, 5}) {
    const std::string message = common_error(ranks, TNT_MISMATCH, [&](Communicator& comm) {
      const std::vector<std::size_t> sent(static_cast<std::size_t>(comm.size()), 3);
      std::vector<std::size_t> received = sent;
      if (comm.rank() == 0) received[1] = 4;
      std::vector<float> in(100);
      std::vector<float> out(100);
      all_to_all_v(comm, in.data(), out.data(), sent, received, TNT_FLOAT32, call());
      barrier(comm, call());
    });
    EXPECT_EQ(message,
              "rank 1 sends 3 elements to rank 0, which expects 4, in all_to_all_v of float32 (call 1 of their communicator): "
              "recv_counts[1] of rank 0 must be send_counts[0] of rank 1");
  }
}

TEST(Failure, ATimeoutNamesAllWhoAreMissing) {
  const std::string message = common_error(4, TNT_TIMEOUT, [](Communicator& comm) {
    barrier(comm, call());
    if (comm.rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    barrier(comm, {.timeout = 0.3, .detail = "the test's own"});
  });
  EXPECT_EQ(message.find("rank 1, rank 3 did not arrive within 0.3 s"), 0U) << message;
  EXPECT_NE(message.find("in barrier (call 2, the test's own)"), std::string::npos) << message;
}

TEST(Failure, AnAbortReachesAllWhereverTheyAre) {
  for (const int aborting : {0, 2}) {
    const std::string message = common_error(3, TNT_ABORTED, [&](Communicator& comm) {
      const auto part = comm.split(0, 0, call());
      if (comm.rank() == aborting) comm.abort(TNT_ABORTED, "the loss is not a number");
      while (true) {
        barrier(comm.rank() == 1 ? *part : comm, call());
      }
    });
    EXPECT_EQ(message, "the loss is not a number");
  }
}

TEST(Failure, WhoLeavesIsNamed) {
  const testing::ThreadJob job(3);
  const auto endings = job.run([](Communicator& comm) {
    barrier(comm, call());
    if (comm.rank() == 1) return;
    all_reduce(comm, 10);
  });
  EXPECT_FALSE(endings[1]);
  for (const std::size_t rank : {0U, 2U}) {
    ASSERT_TRUE(endings[rank]);
    EXPECT_EQ(endings[rank]->status(), TNT_PEER_LOST);
    EXPECT_EQ(std::string(endings[rank]->what()).find("rank 1 left the job"), 0U) << endings[rank]->what();
  }
  EXPECT_STREQ(endings[0]->what(), endings[2]->what());
}

TEST(Failure, WhoHasDoneItsPartMayLeave) {
  testing::run_threads(3, [](Communicator& comm) {
    barrier(comm, call());
    if (comm.rank() == 2) return;  // the others have already seen it
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  });
}

TEST(Failure, EveryLaterCallFailsAlike) {
  const std::string message = common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    std::string first;
    try {
      all_reduce(comm, 10 + static_cast<std::size_t>(comm.rank()));
      ADD_FAILURE();
    } catch (const Error& error) {
      first = error.what();
    }
    try {
      (void)comm.split(0, 0, call());
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), first);
    }
    barrier(comm, call());
  });
  EXPECT_NE(message, "");
}

TEST(Failure, CancelEndsACallInAnotherThread) {
  testing::run_threads(2, [](Communicator& world) {
    const auto part = world.split(0, 0, call());
    if (world.rank() == 0) {
      std::thread waiting([&] {
        try {
          barrier(*part, call());
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("was cancelled"), std::string::npos) << error.what();
        }
      });
      part->cancel();
      waiting.join();
    }
    barrier(world, call());  // the job continues
  });
}

}  // namespace
}  // namespace tnt
