// Communicators made by split: colours, the order of keys, splits of splits, and release of their memory.
#include <gtest/gtest.h>

#include <thread>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::run_threads;
using testing::ThreadJob;

std::vector<int> gathered(Communicator& comm, int value) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  all_gather(comm, &value, all.data(), 1, TNT_INT32, call());
  return all;
}

TEST(Split, ColoursMakeGroupsAndKeysTheirOrder) {
  run_threads(6, [](Communicator& world) {
    const int rank = world.rank();
    const auto part = world.split(rank % 2, -rank, call());
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(part->local_size(), 3);
    EXPECT_EQ(part->local_rank(), part->rank());
    EXPECT_EQ(gathered(*part, rank), rank % 2 == 0 ? (std::vector<int>{4, 2, 0}) : (std::vector<int>{5, 3, 1}));
  });
}

TEST(Split, EqualKeysKeepTheOrderOfRanks) {
  run_threads(4, [](Communicator& world) {
    const auto part = world.split(7, world.rank() == 3 ? -1 : 5, call());
    EXPECT_EQ(gathered(*part, world.rank()), (std::vector<int>{3, 0, 1, 2}));
  });
}

TEST(Split, ANegativeColourTakesPartAndGetsNothing) {
  run_threads(4, [](Communicator& world) {
    const auto part = world.split(world.rank() == 1 ? -1 : 0, 0, call());
    EXPECT_EQ(part == nullptr, world.rank() == 1);
    if (part) {
      EXPECT_EQ(gathered(*part, world.rank()), (std::vector<int>{0, 2, 3}));
    }
    EXPECT_EQ(world.split(-5, 0, call()), nullptr);
    barrier(world, call());
  });
}

TEST(Split, PartsMayBeSplitAgain) {
  run_threads(8, [](Communicator& world) {
    const auto half = world.split(world.rank() / 4, 0, call());
    const auto quarter = half->split(half->rank() / 2, 0, call());
    const auto alone = quarter->split(quarter->rank(), 0, call());
    const int first = world.rank() / 2 * 2;
    EXPECT_EQ(gathered(*quarter, world.rank()), (std::vector<int>{first, first + 1}));
    EXPECT_EQ(gathered(*alone, world.rank()), (std::vector<int>{world.rank()}));
  });
}

TEST(Split, ErrorsNameRanksOfTheJob) {
  const std::string message = testing::common_error(4, TNT_MISMATCH, [](Communicator& world) {
    const auto part = world.split(world.rank() / 2, 0, call());
    if (world.rank() == 3) {
      barrier(*part, call());
    } else if (world.rank() == 2) {
      (void)gathered(*part, 1);
    }
    barrier(world, call());
  });
  EXPECT_NE(message.find("rank 3 called barrier while rank 2 called all_gather"), std::string::npos) << message;
}

TEST(Split, DestroyedCommunicatorsGiveTheirMemoryBack) {
  const ThreadJob job(4);
  std::int64_t before = 0;
  const auto errors = job.run([&](Communicator& world) {
    std::vector<float> values(100'000, 1.0F);
    const auto use = [&](Communicator& comm) {
      const TensorView view{.in = values.data(), .out = values.data(), .count = values.size()};
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_MAX, call());
    };
    use(*world.split(0, 0, call()));  // the first one that is destroyed makes the table of free memory
    use(world);
    barrier(world, call());
    if (world.rank() == 0) before = job.bytes_taken();
    for (int i = 0; i < 20; ++i) {
      barrier(world, call());
      const auto part = world.split(0, 0, call());
      use(*part);
    }
    barrier(world, call());  // all have destroyed theirs
    EXPECT_EQ(job.bytes_taken(), before) << "rank " << world.rank();
    barrier(world, call());
  });
  for (const auto& error : errors) EXPECT_FALSE(error);
}

}  // namespace
}  // namespace tnt
