// What ranks share besides data: presence, the one reason why the job ended, and free memory.
#include "comm/shm/world.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

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
      const std::uint64_t offset = world->offset_of(world->allocate(page_size() + 1));
      EXPECT_EQ(offset % page_size(), 0U);
      EXPECT_GE(offset, ShmWorld::first_offset() + 1000);
      for (const std::uint64_t other : offsets) EXPECT_GE(other > offset ? other - offset : offset - other, 2 * page_size());
      offsets.insert(offset);
    }
  }
}

TEST_F(WorldTest, MemoryThatIsFreeIsGivenAgainAndIsZero) {
  const auto first = world(0);
  const auto second = world(1);
  const std::uint64_t small = first->allocate(1);
  const std::uint64_t large = first->allocate(2 * page_size());
  const auto bytes = segment->map(first->offset_of(small), 1);
  bytes->data()[0] = std::byte{1};
  second->free(small, 1);
  EXPECT_NE(first->offset_of(first->allocate(2 * page_size())), first->offset_of(small)) << "too large";
  const std::uint64_t again = first->allocate(page_size());
  EXPECT_EQ(first->offset_of(again), first->offset_of(small));
  EXPECT_NE(again, small) << "another life of the memory has another number";
  EXPECT_EQ(bytes->data()[0], std::byte{0});
  EXPECT_NE(first->offset_of(second->allocate(1)), first->offset_of(small));
  second->free(large, 2 * page_size());
  EXPECT_EQ(first->offset_of(first->allocate(2 * page_size())), first->offset_of(large));
}

// More regions than the table of free ones holds: those that find no place are lost, none is given twice.
TEST_F(WorldTest, MoreMemoryMayBeFreedThanIsKeptForReuse) {
  const auto self = world(0);
  std::vector<std::uint64_t> regions;
  for (std::size_t i = 0; i < ShmWorld::max_free + 10; ++i) regions.push_back(self->allocate(1));
  for (const std::uint64_t region : regions) self->free(region, 1);
  std::set<std::uint64_t> offsets;
  for (std::size_t i = 0; i < ShmWorld::max_free + 10; ++i) offsets.insert(self->offset_of(self->allocate(1)));
  EXPECT_EQ(offsets.size(), ShmWorld::max_free + 10);
}

TEST_F(WorldTest, ThreadsThatFreeAndAllocateShareNothing) {
  const auto self = world(0);
  std::vector<std::atomic<int>> users(10'000);  // of each page
  std::vector<std::thread> threads;
  const std::uint64_t begin = self->offset_of(self->allocate(1)) + page_size();
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t region = self->allocate(1);
        std::atomic<int>& user = users.at((self->offset_of(region) - begin) / page_size());
        EXPECT_EQ(user.fetch_add(1), 0);
        user.fetch_sub(1);
        self->free(region, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(WorldTest, TooManyRanksAreRefused) {
  EXPECT_NO_THROW(world(0, max_job_ranks));
  EXPECT_THROW(world(0, max_job_ranks + 1), Error);
  EXPECT_NO_THROW(ShmWorld::check_members(max_ranks));
  EXPECT_THROW(ShmWorld::check_members(max_ranks + 1), Error);
}

}  // namespace
}  // namespace tnt
