// The threads of reducers: one for plans in turn, another for a plan that would have to wait for a busy one.
#include "reducer/progress_engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "common/error.hpp"
#include "support/no_new_threads.hpp"

namespace tnt {
namespace {

using std::chrono::seconds;

class Client final : public ProgressEngine::Client {
 public:
  explicit Client(std::function<void()> work = {}) : work_(std::move(work)) {}
  void serve() override {
    if (work_) work_();
    overdue = false;
    ++served;
  }
  [[nodiscard]] bool is_overdue() const noexcept override { return overdue; }

  std::atomic<bool> overdue{false};
  std::atomic<int> served{0};

 private:
  std::function<void()> work_;
};

[[nodiscard]] bool becomes(const std::function<bool()>& condition, seconds limit = seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(ProgressEngine, HasNoThreadWithoutAClient) { EXPECT_EQ(ProgressEngine().threads(), 0U); }

TEST(ProgressEngine, ServesClientsInTurnWithOneThread) {
  ProgressEngine engine;
  Client one;
  Client two;
  engine.add(one);
  engine.add(two);
  for (int i = 1; i <= 100; ++i) {
    Client& client = i % 2 == 0 ? one : two;
    const int before = client.served;
    // a thread that has just served the other one may still count as busy
    ASSERT_TRUE(becomes([&] { return engine.busy() == 0; }));
    engine.wake(client);
    ASSERT_TRUE(becomes([&] { return client.served == before + 1; }));
  }
  EXPECT_EQ(engine.threads(), 1U);
  engine.remove(one);
  engine.remove(two);
}

TEST(ProgressEngine, NoClientWaitsForAnotherOne) {
  ProgressEngine engine;
  std::promise<void> second_was_served;
  Client first([&] { second_was_served.get_future().wait(); });
  Client second([&] { second_was_served.set_value(); });
  engine.add(first);
  engine.add(second);
  engine.wake(first);
  engine.wake(second);
  EXPECT_TRUE(becomes([&] { return first.served == 1 && second.served == 1; }));
  EXPECT_EQ(engine.threads(), 2U);
  engine.remove(first);
  engine.remove(second);
}

TEST(ProgressEngine, AThreadThatHasNothingToDoEnds) {
  ProgressEngine engine;
  std::promise<void> second_was_served;
  Client first([&] { second_was_served.get_future().wait(); });
  Client second([&] { second_was_served.set_value(); });
  engine.add(first);
  engine.add(second);
  engine.wake(first);
  engine.wake(second);
  EXPECT_TRUE(becomes([&] { return first.served == 1 && second.served == 1; }));
  EXPECT_TRUE(becomes([&] { return engine.threads() == 1; }));
  second_was_served = {};
  engine.wake(first);
  engine.wake(second);
  EXPECT_TRUE(becomes([&] { return first.served == 2 && second.served == 2; })) << "another thread may start later";
  engine.remove(first);
  engine.remove(second);
}

TEST(ProgressEngine, WithoutAFirstThreadTheClientIsNotAdded) {
  ProgressEngine engine;
  Client client;
  {
    const testing::NoNewThreads limit;
    EXPECT_THROW(engine.add(client), Error);
  }
  EXPECT_EQ(engine.threads(), 0U);
  engine.add(client);
  engine.wake(client);
  EXPECT_TRUE(becomes([&] { return client.served == 1; }));
  engine.remove(client);
}

// Those that wait in their callers are reduced there, and the thread that there is serves the rest one after another.
TEST(ProgressEngine, WithoutAnotherThreadClientsAreServedInTurn) {
  ProgressEngine engine;
  std::promise<void> began;
  std::promise<void> end;
  Client first([&] {
    began.set_value();
    end.get_future().wait();
  });
  Client second;
  Client third;
  for (Client* client : {&first, &second, &third}) engine.add(*client);
  engine.wake(first);
  began.get_future().wait();
  {
    const testing::NoNewThreads limit;
    EXPECT_NO_THROW(engine.wake(second));
    EXPECT_NO_THROW(engine.wake(third));
    end.set_value();
    EXPECT_TRUE(becomes([&] { return second.served == 1 && third.served == 1; }));
  }
  EXPECT_EQ(engine.threads(), 1U);
  for (Client* client : {&first, &second, &third}) engine.remove(*client);
}

TEST(ProgressEngine, AWakeDuringAServiceIsNotLost) {
  ProgressEngine engine;
  std::promise<void> began;
  std::promise<void> woken;
  std::atomic<int> calls{0};
  Client client([&] {
    if (calls++ > 0) return;
    began.set_value();
    woken.get_future().wait();
  });
  engine.add(client);
  engine.wake(client);
  began.get_future().wait();
  engine.wake(client);
  woken.set_value();
  EXPECT_TRUE(becomes([&] { return client.served == 2; }));
  EXPECT_EQ(engine.threads(), 1U);
  engine.remove(client);
}

TEST(ProgressEngine, AnIdleThreadSeesWhatIsOverdue) {
  ProgressEngine engine;
  Client client;
  engine.add(client);
  client.overdue = true;
  EXPECT_TRUE(becomes([&] { return client.served == 1; }));
  engine.remove(client);
}

TEST(ProgressEngine, ACallerThatWaitsSeesWhatIsOverdueBesideABusyThread) {
  ProgressEngine engine;
  std::promise<void> end;
  Client busy([&] { end.get_future().wait(); });
  Client client;
  engine.add(busy);
  engine.add(client);
  engine.wake(busy);
  ASSERT_TRUE(becomes([&] { return engine.busy() == 1; }));
  client.overdue = true;
  engine.look_for_overdue();
  EXPECT_TRUE(becomes([&] { return client.served == 1; }));
  end.set_value();
  engine.remove(busy);
  engine.remove(client);
}

TEST(ProgressEngine, RemoveWaitsForTheService) {
  ProgressEngine engine;
  std::promise<void> began;
  std::atomic<bool> ended{false};
  Client client([&] {
    began.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = true;
  });
  engine.add(client);
  engine.wake(client);
  began.get_future().wait();
  engine.remove(client);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace tnt
