// What ranks share besides data: presence, the one reason why the job ended, and free memory.
#include "comm/shm/world.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>

namespace tnt {
namespace {

class WorldTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<ShmWorld> world(int rank, int ranks = 4) const {
    return std::make_unique<ShmWorld>(segment, rank, ranks, 1000);
  }
  const std::shared_ptr<Segment> segment = std::make_shared<Segment>(Segment::create());
};

TEST_F(WorldTest, RanksComeAndLeave) {
  const auto self = world(0);
  EXPECT_EQ(self->peer_status(1), ShmWorld::PeerStatus::alive);  // not here yet: waited for
  auto other = world(1);
  EXPECT_EQ(self->peer_status(1), ShmWorld::PeerStatus::alive);
  EXPECT_EQ(self->pid(1), getpid());
  other.reset();
  EXPECT_EQ(self->peer_status(1), ShmWorld::PeerStatus::left);
  EXPECT_EQ(self->rank(), 0);
  EXPECT_EQ(self->ranks(), 4);
}

TEST_F(WorldTest, TheFirstReasonToEndWins) {
  const auto self = world(0);
  EXPECT_FALSE(self->async_error());
  std::vector<std::thread> threads;
  for (int rank = 1; rank < 4; ++rank) {
    threads.emplace_back([this, rank] { world(rank)->abort(TNT_ABORTED, std::string(100, static_cast<char>('a' + rank))); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto error = self->async_error();
  ASSERT_TRUE(error);
  const std::string message = error->what();
  EXPECT_EQ(message, std::string(100, message[0]));
  self->abort(TNT_TIMEOUT, "too late");
  EXPECT_EQ(self->async_error()->what(), message);
  EXPECT_EQ(self->async_error()->status(), TNT_ABORTED);
}

TEST_F(WorldTest, ALongReasonIsCut) {
  const auto self = world(0);
  self->abort(TNT_SYSTEM, std::string(10'000, 'x'));
  EXPECT_EQ(std::string(self->async_error()->what()), std::string(2047, 'x'));
}

TEST_F(WorldTest, NoMemoryIsGivenTwice) {
  std::set<std::uint64_t> offsets;
  const auto first = world(0);
  const auto second = world(1);
  for (int i = 0; i < 10; ++i) {
    for (ShmWorld* world : {first.get(), second.get()}) {
      const std::uint64_t offset = world->allocate(page_size() + 1);
      EXPECT_EQ(offset % page_size(), 0U);
      EXPECT_GE(offset, ShmWorld::first_offset() + 1000);
      for (const std::uint64_t other : offsets) EXPECT_GE(other > offset ? other - offset : offset - other, 2 * page_size());
      offsets.insert(offset);
    }
  }
}

TEST_F(WorldTest, TooManyRanksAreRefused) {
  EXPECT_NO_THROW(world(0, max_ranks));
  EXPECT_THROW(world(0, max_ranks + 1), Error);
}

}  // namespace
}  // namespace tnt
