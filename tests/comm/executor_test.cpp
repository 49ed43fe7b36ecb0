// The operations of one communicator: one after another, in order, in the caller or in the thread; errors reach the waiter.
#include "comm/executor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <vector>

namespace tnt {
namespace {

TEST(Executor, RunsInTheCallersThreadWhenIdle) {
  Executor executor;
  std::thread::id where;
  executor.run([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(Executor, KeepsTheOrderOfCalls) {
  Executor executor;
  std::vector<int> order;
  std::promise<void> go;
  const auto first = executor.start([&, ready = go.get_future().share()] {
    ready.wait();
    order.push_back(0);
  });
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 1; i < 50; ++i) works.push_back(executor.start([&order, i] { order.push_back(i); }));
  EXPECT_FALSE(works.back()->wait(0));
  go.set_value();
  executor.run([&] { order.push_back(50); });  // waits for the operations before it
  EXPECT_TRUE(first->wait(-1));
  ASSERT_EQ(order.size(), 51U);
  for (int i = 0; i <= 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Executor, NeverRunsTwoAtOnce) {
  Executor executor;
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  const auto operation = [&] {
    EXPECT_EQ(++inside, 1);
    std::this_thread::yield();
    --inside;
    ++done;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) {
        if ((i + k) % 2 == 0) {
          executor.run(operation);
        } else {
          EXPECT_TRUE(executor.start(operation)->wait(-1));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 400);
}

TEST(Executor, BringsErrorsBackAndGoesOn) {
  Executor executor;
  const auto fails = [] { fail(TNT_TIMEOUT, "late"); };
  EXPECT_THROW(executor.run(fails), Error);
  const auto work = executor.start(fails);
  EXPECT_THROW((void)work->wait(-1), Error);
  EXPECT_THROW((void)work->wait(0), Error);  // every further wait throws too
  const auto foreign = executor.start([] { throw std::out_of_range("other"); });
  try {
    (void)foreign->wait(-1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_STREQ(error.what(), "other");
  }
  bool ran = false;
  executor.run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(Executor, FinishesWhatWasStartedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    Executor executor;
    for (int i = 0; i < 20; ++i) (void)executor.start([&] { ++done; });
  }
  EXPECT_EQ(done, 20);
}

TEST(Work, WaitsAsLongAsOneLikes) {
  Executor executor;
  std::promise<void> go;
  const auto work = executor.start([ready = go.get_future().share()] { ready.wait(); });
  EXPECT_FALSE(work->wait(0));
  EXPECT_FALSE(work->wait(0.01));
  std::thread later([&] { go.set_value(); });
  EXPECT_TRUE(work->wait(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(work->wait(1e300));
  later.join();
}

}  // namespace
}  // namespace tnt
