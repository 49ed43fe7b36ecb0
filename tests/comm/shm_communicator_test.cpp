// The description of the shared-memory communicator, and the phases that it reports to an observer.
#include "comm/shm/shm_communicator.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::default_timeout;
using testing::run_threads;

class Observer final : public PhaseObserver {
 public:
  void phase(Phase phase, std::int64_t begin_ns, std::int64_t end_ns) override {
    EXPECT_LE(begin_ns, end_ns);
    EXPECT_LE(last_end_, begin_ns);
    last_end_ = end_ns;
    names.emplace_back(phase_names.at(static_cast<std::size_t>(phase)));
  }
  std::vector<std::string> names;

 private:
  std::int64_t last_end_ = 0;
};

TEST(ShmCommunicator, SaysWhereItStands) {
  run_threads(3, [](Communicator& comm) {
    EXPECT_EQ(comm.size(), 3);
    EXPECT_EQ(comm.local_size(), 3);
    EXPECT_EQ(comm.local_rank(), comm.rank());
    EXPECT_STREQ(comm.transport(), "shm");
  });
}

TEST(ShmCommunicator, ReportsItsPhasesInOrder) {
  const std::vector<std::string> small{"pack", "wait", "reduce", "unpack"};
  const std::vector<std::string> chunk{"pack", "wait", "reduce", "wait", "unpack"};
  const std::vector<std::string> two_chunks{"pack", "wait", "reduce", "pack", "wait", "unpack", "reduce", "wait", "unpack"};
  run_threads(2, [&](Communicator& comm) {
    const auto phases_of = [&](std::size_t count) {
      std::vector<float> values(count);
      const TensorView view{.in = values.data(), .out = values.data(), .count = count};
      Observer observer;
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, {.timeout = default_timeout, .observer = &observer});
      return observer.names;
    };
    EXPECT_EQ(phases_of(2048), small);
    EXPECT_EQ(phases_of(2049), chunk);
    EXPECT_EQ(phases_of(65536), chunk);
    EXPECT_EQ(phases_of(65537), two_chunks);
  });
}

// More ranks than cores, up to the most that fit into little memory.
TEST(ShmCommunicator, ManyMoreRanksThanCores) {
  run_threads(48, [](Communicator& comm) {
    std::vector<std::int64_t> values(5000, comm.rank());
    const TensorView view{.in = values.data(), .out = values.data(), .count = values.size()};
    all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_INT64), TNT_SUM, testing::call());
    EXPECT_EQ(values, std::vector<std::int64_t>(5000, 48 * 47 / 2));
  });
}

// Two ranks of a job, as threads, with worlds of which the test knows how much memory they have given.
void run_pair(const std::function<void(ShmWorld&, Communicator&)>& body) {
  const auto segment = std::make_shared<Segment>(Segment::create());
  const auto rank_of = [&](int rank) {
    const auto world = std::make_shared<ShmWorld>(segment, rank, 2, ShmCommunicator::world_bytes(2));
    ShmCommunicator comm(world);
    body(*world, comm);
  };
  std::thread other(rank_of, 1);
  rank_of(0);
  other.join();
}

void expect_sum(Communicator& comm) {
  std::vector<std::int64_t> values(3000, comm.rank() + 1);
  const TensorView view{.in = values.data(), .out = values.data(), .count = values.size()};
  all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_INT64), TNT_SUM, testing::call());
  EXPECT_EQ(values, std::vector<std::int64_t>(3000, 3));
}

TEST(ShmCommunicator, TheMemoryOfOneThatIsDestroyedIsUsedAgain) {
  run_pair([](ShmWorld& world, Communicator& comm) {
    std::uint64_t begin = 0;
    constexpr int communicators = 300;
    for (int i = 0; i < communicators; ++i) {
      const auto part = comm.split(0, 0, testing::call());
      expect_sum(*part);
      if (i == 10) begin = world.offset_of(world.allocate(1));
    }
    barrier(comm, testing::call());
    const std::uint64_t each = ShmCommunicator::world_bytes(2);
    EXPECT_LT(world.offset_of(world.allocate(1)) - begin, 10 * each) << "of " << communicators * each;
  });
}

// The ranks of one node of the largest job.
TEST(ShmCommunicator, RanksMayHaveHighNumbersInTheJob) {
  const std::vector<int> members{max_ranks + 1, max_job_ranks - 1};
  const auto segment = std::make_shared<Segment>(Segment::create());
  const auto rank_of = [&](int rank) {
    const auto world = std::make_shared<ShmWorld>(segment, rank, max_job_ranks, ShmCommunicator::world_bytes(2));
    ShmCommunicator comm(world, members);
    expect_sum(comm);
    expect_sum(*comm.split(0, 0, testing::call()));
  };
  std::thread other(rank_of, members[1]);
  rank_of(members[0]);
  other.join();
}

// A duplicate fails with the errors of its original, also when that is destroyed, and with no other's.
TEST(ShmCommunicator, ADuplicateDoesNotSeeWhatComesAfterItsOriginal) {
  run_pair([](ShmWorld&, Communicator& comm) {
    auto original = comm.split(0, 0, testing::call());
    original->set_error_scope(ErrorScope::communicator);
    auto duplicate = original->duplicate(testing::call());
    original.reset();
    barrier(comm, testing::call());
    std::vector<std::unique_ptr<Communicator>> later;
    for (int i = 0; i < 3; ++i) later.push_back(comm.split(0, 0, testing::call()));
    for (auto& each : later) each->set_error_scope(ErrorScope::communicator);
    for (auto& each : later) {
      if (comm.rank() == 0) each->abort(TNT_ABORTED, "of another");
    }
    barrier(comm, testing::call());
    EXPECT_FALSE(duplicate->async_error()) << duplicate->async_error()->what();
    expect_sum(*duplicate);
  });
}

// Both ranks leave at the same time, again and again: the memory has one owner afterwards.
TEST(ShmCommunicator, RanksThatLeaveTogetherGiveTheMemoryBackOnce) {
  run_pair([](ShmWorld&, Communicator& comm) {
    for (int i = 0; i < 200; ++i) {
      std::vector<std::unique_ptr<Communicator>> two;
      for (int j = 0; j < 2; ++j) two.push_back(comm.split(0, 0, testing::call()));
      for (auto& each : two) expect_sum(*each);
      barrier(comm, testing::call());
    }
  });
}

}  // namespace
}  // namespace tnt
