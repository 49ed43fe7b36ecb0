// Communicators of reducers: used again when all ranks have given them back, and only then.
#include "reducer/communicator_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::run_threads;

void expect_works(Communicator& comm, int ranks) {
  std::int32_t sum = 1;
  const TensorView view{.in = &sum, .out = &sum, .count = 1, .dtype = TNT_INT32};
  all_reduce(comm, FusedBuffer({&view, 1}, TNT_INT32), TNT_SUM, call());
  EXPECT_EQ(sum, ranks);
}

TEST(CommunicatorPool, TakesAgainWhatAllRanksHaveGivenBack) {
  run_threads(3, [](Communicator& world) {
    CommunicatorPool pool(false);
    auto first = pool.take(world, call());
    auto second = pool.take(world, call());
    EXPECT_EQ(first.index, 0U);
    EXPECT_EQ(second.index, 1U);
    const Communicator* const address = second.communicator.get();
    pool.give_back(std::move(second));
    auto again = pool.take(world, call());
    EXPECT_EQ(again.index, 1U);
    EXPECT_EQ(again.communicator.get(), address);
    expect_works(*again.communicator, 3);
    expect_works(*first.communicator, 3);
  });
}

TEST(CommunicatorPool, TakesANewOneWhileARankStillUsesTheOld) {
  run_threads(2, [](Communicator& world) {
    CommunicatorPool pool(false);
    auto first = pool.take(world, call());
    if (world.rank() == 0) pool.give_back(std::move(first));
    auto second = pool.take(world, call());
    EXPECT_EQ(second.index, 1U);
    expect_works(*second.communicator, 2);
    if (world.rank() == 1) pool.give_back(std::move(first));
    auto third = pool.take(world, call());
    EXPECT_EQ(third.index, 0U);
    expect_works(*third.communicator, 2);
  });
}

TEST(CommunicatorPool, MakesMoreThanItKeeps) {
  run_threads(2, [](Communicator& world) {
    CommunicatorPool pool(false);
    std::vector<CommunicatorPool::Taken> taken;
    for (std::size_t i = 0; i < 66; ++i) {
      taken.push_back(pool.take(world, call()));
      EXPECT_EQ(taken.back().index, i);
    }
    pool.give_back(std::move(taken.back()));
    auto next = pool.take(world, call());
    EXPECT_EQ(next.index, 66U);
    expect_works(*next.communicator, 2);
  });
}

}  // namespace
}  // namespace tnt
