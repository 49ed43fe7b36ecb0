// When simulated work runs: late, by polls or in a thread; work that waits for other ranks; injected errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "common/error.hpp"
#include "device/handles.hpp"
#include "support/simulated_device.hpp"
#include "support/simulated_stream.h"

namespace tnt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The order in which four items on two streams run.
std::string order_of(unsigned seed) {
  SimulatedDevice device(0, {.seed = seed});
  const Stream one(device);
  const Stream two(device);
  std::string order;
  for (const char name : {'a', 'b'})
    device.enqueue(
        one.get(), {}, {}, [&order, name] { order += name; }, "work");
  for (const char name : {'x', 'y'})
    device.enqueue(
        two.get(), {}, {}, [&order, name] { order += name; }, "work");
  EXPECT_EQ(order, "");
  device.run_all();
  return order;
}

TEST(SimulatedProgress, ASeedIsAnOrderAndAllOrdersComeUp) {
  std::set<std::string> orders;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    orders.insert(order_of(seed));
    EXPECT_EQ(order_of(seed), order_of(seed));
  }
  EXPECT_THAT(orders, ElementsAre("abxy", "axby", "axyb", "xaby", "xayb", "xyab"));
}

TEST(SimulatedProgress, PollsGetSomethingDone) {
  SimulatedDevice device;
  const Stream stream(device);
  int done = 0;
  for (int i = 0; i < 100; ++i)
    device.enqueue(
        stream.get(), {}, {}, [&] { ++done; }, "work");
  EXPECT_FALSE(device.idle(stream.get()));
  EXPECT_LT(done, 4);
  while (!device.idle(stream.get())) {
  }
  EXPECT_EQ(done, 100);
}

TEST(SimulatedProgress, AThreadRunsWorkWhileTheHostWaitsElsewhere) {
  SimulatedDevice device(0, {.progress = Progress::thread});
  const Stream stream(device);
  std::mutex mutex;
  std::condition_variable told;
  bool said = false;
  const auto say = [&] {
    const std::scoped_lock lock(mutex);
    said = true;
    told.notify_one();
  };
  std::function<void()> function = say;
  device.launch_host_func([](void* data) { (*static_cast<std::function<void()>*>(data))(); }, &function, stream.get());
  std::unique_lock lock(mutex);
  EXPECT_TRUE(told.wait_for(lock, std::chrono::seconds(20), [&] { return said; }));
}

// A rendezvous of ranks, like a collective: finished when all have arrived.
struct SimulatedCollective {
  std::atomic<int> to_come;
  std::atomic<int> destroyed{0};
};
struct Arrival {
  SimulatedCollective* collective;
  bool came = false;
};

void enqueue_arrival(StreamHandle stream, SimulatedCollective& collective) {
  const auto try_run = [](void* data) {
    auto& arrival = *static_cast<Arrival*>(data);
    if (!arrival.came) --arrival.collective->to_come;
    arrival.came = true;
    return arrival.collective->to_come == 0 ? 1 : 0;
  };
  const auto destroy = [](void* data) {
    ++static_cast<Arrival*>(data)->collective->destroyed;
    delete static_cast<Arrival*>(data);
  };
  // like a library that was loaded later
  const auto enqueue = reinterpret_cast<tnt_simulated_enqueue_fn>(dlsym(RTLD_DEFAULT, "tnt_simulated_enqueue"));
  ASSERT_NE(enqueue, nullptr);
  enqueue(stream, nullptr, nullptr, 0, nullptr, nullptr, 0, try_run, destroy, new Arrival{&collective}, "meeting");
}

TEST(SimulatedProgress, RanksMeetWhoeverWaitsAndOtherStreamsGoOn) {
  for (const Progress progress : {Progress::polls, Progress::thread}) {
    constexpr int ranks = 3;
    constexpr int rounds = 20;
    std::vector<SimulatedCollective> collectives(rounds);
    for (SimulatedCollective& collective : collectives) collective.to_come = ranks;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        SimulatedDevice device(0, {.seed = static_cast<unsigned>(rank), .progress = progress});
        const Stream stream(device);
        const Stream other(device);
        for (SimulatedCollective& collective : collectives) {
          enqueue_arrival(stream.get(), collective);
          device.enqueue(
              other.get(), {}, {}, [] {}, "backward");
          if (rank == 1) device.synchronize(other.get());
          if (rank == 2) device.synchronize(stream.get());
        }
        device.synchronize(stream.get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const SimulatedCollective& collective : collectives) EXPECT_EQ(collective.destroyed, ranks);
  }
}

TEST(SimulatedProgress, WorkThatNeverEndsIsNamed) {
  SimulatedCollective collective{.to_come = 2};
  {
    SimulatedDevice device(0, {.no_progress_timeout = 0.05});
    const Stream stream(device);
    device.name_stream(stream.get(), "NCCL's");
    enqueue_arrival(stream.get(), collective);
    EXPECT_THROW(device.synchronize(stream.get()), Error);
    EXPECT_THAT(device.take_reports(), ElementsAre(HasSubstr("NCCL's never ends: meeting (work 1 on NCCL's) does not end")));
    device.run_all();  // gives up as well
    EXPECT_THAT(device.take_reports(), ElementsAre(HasSubstr("the device never ends: meeting")));
  }
  EXPECT_EQ(collective.destroyed, 1);
}

TEST(SimulatedProgress, CallsFailOnDemand) {
  SimulatedDevice device;
  const Stream stream(device);
  const Event event(device);
  device.fail_at(Call::record, 2);
  event.record(stream.get());
  try {
    event.record(stream.get());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    EXPECT_STREQ(error.what(), "record failed: injected by the test");
  }
  event.record(stream.get());
  EXPECT_EQ(device.calls(Call::record), 3);
  EXPECT_THAT(device.enqueued_on(stream.get()), ElementsAre("record", "record"));
}

TEST(SimulatedProgress, AStreamThatIsGoneIsRefused) {
  SimulatedDevice device;
  StreamHandle stream = device.make_stream(Priority::high);
  EXPECT_EQ(device.priority_of(stream), Priority::high);
  int done = 0;
  device.enqueue(
      stream, {}, {}, [&] { ++done; }, "work");
  device.destroy_stream(stream);
  EXPECT_THROW(device.synchronize(stream), Error);
  EXPECT_THAT(device.take_reports(), ElementsAre(HasSubstr("is no stream of this device, or was destroyed")));
  device.run_all();
  EXPECT_EQ(done, 1);  // its work still runs to its end
}

}  // namespace
}  // namespace tnt::testing
