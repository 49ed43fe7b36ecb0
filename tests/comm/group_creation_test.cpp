// Communicators that their members alone create, while the other ranks go on: over every transport.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::run_threads;

std::vector<int> gathered(Communicator& comm, int value) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  all_gather(comm, &value, all.data(), 1, TNT_INT32, call());
  return all;
}

// Every second rank, from the last to the first.
std::vector<int> some_of(int ranks) {
  std::vector<int> members;
  for (int rank = (ranks - 1) / 2 * 2; rank >= 0; rank -= 2) members.push_back(rank);
  return members;
}

class GroupCreationTest : public ::testing::TestWithParam<int> {};

TEST_P(GroupCreationTest, OnlyMembersCallAndTheListIsTheirOrder) {
  const std::vector<int> members = some_of(GetParam());
  run_threads(GetParam(), [&](Communicator& world) {
    if (world.rank() % 2 == 0) {
      const auto group = world.create_group(members, 5, call());
      EXPECT_EQ(group->size(), static_cast<int>(members.size()));
      EXPECT_EQ(members[static_cast<std::size_t>(group->rank())], world.rank());
      EXPECT_EQ(gathered(*group, world.rank()), members);
      std::vector<float> data(40'000, static_cast<float>(world.rank()));
      const TensorView view{.in = data.data(), .out = data.data(), .count = data.size()};
      all_reduce(*group, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, call());
      EXPECT_EQ(data.back(), static_cast<float>(std::accumulate(members.begin(), members.end(), 0)));
    }
    barrier(world, call());
  });
}

// All pairs, which overlap, and parts of a part.
TEST_P(GroupCreationTest, GroupsOverlapAndAreDividedAgain) {
  run_threads(GetParam(), [](Communicator& world) {
    for (int first = 0; first < world.size(); ++first) {
      for (int second = first + 1; second < world.size(); ++second) {
        const std::vector<int> pair{second, first};
        if (world.rank() != first && world.rank() != second) continue;
        const auto group = world.create_group(pair, 0, call());
        EXPECT_EQ(gathered(*group, world.rank()), pair);
        const std::vector<int> own{group->rank()};
        EXPECT_EQ(gathered(*group->create_group(own, 0, call()), 7), std::vector<int>{7});
      }
    }
  });
}

// The first member is far ahead of the others, and ranks join while a collective of the communicator's runs.
TEST_P(GroupCreationTest, OneAfterAnotherBesideCollectives) {
  std::vector<int> all(static_cast<std::size_t>(GetParam()));
  std::iota(all.begin(), all.end(), 0);
  run_threads(GetParam(), [&](Communicator& world) {
    std::thread collectives([&] {
      for (int i = 0; i < 50; ++i) barrier(world, call());
    });
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < 6; ++i) groups.push_back(world.create_group(all, i % 2, call()));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(gathered(*groups[static_cast<std::size_t>(i)], i), std::vector<int>(all.size(), i));
    collectives.join();
  });
}

// Each rank's threads come in an order of their own.
TEST_P(GroupCreationTest, TagsTellThreadsApart) {
  std::vector<int> all(static_cast<std::size_t>(GetParam()));
  std::iota(all.begin(), all.end(), 0);
  run_threads(GetParam(), [&](Communicator& world) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      const int tag = (i + world.rank()) % 4;
      threads.emplace_back([&, tag] {
        const auto group = world.create_group(all, tag, call());
        EXPECT_EQ(gathered(*group, tag), std::vector<int>(all.size(), tag));
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (std::thread& thread : threads) thread.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupCreationTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(GroupCreation, AnotherListIsTheSameErrorOnAllRanks) {
  const std::string message = testing::common_error(3, TNT_MISMATCH, [](Communicator& world) {
    if (world.rank() == 0) (void)world.create_group(std::vector<int>{0, 1, 2}, 3, call());
    if (world.rank() == 1) (void)world.create_group(std::vector<int>{0, 1}, 3, call());
    barrier(world, call());
  });
  EXPECT_EQ(message,
            "rank 1 called create_group of ranks 0, 1 with tag 3 while rank 0 called it with other ranks, 3 of them: all "
            "members must pass the same list");
}

TEST(GroupCreation, AFirstMemberThatDoesNotComeIsNamed) {
  const std::string message = testing::common_error(2, TNT_TIMEOUT, [](Communicator& world) {
    if (world.rank() == 1) (void)world.create_group(std::vector<int>{0, 1}, 3, call(0.2));
    barrier(world, call());
  });
  EXPECT_EQ(message.find("rank 0 did not arrive within 0.2 s while rank 1 in recv of "), 0U) << message;
  EXPECT_NE(message.find("(create_group of ranks 0, 1 with tag 3) waited"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
