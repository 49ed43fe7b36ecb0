// The description of the shared-memory communicator, and the phases that it reports to an observer.
#include "comm/shm/shm_communicator.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::default_timeout;
using testing::run_threads;

class Observer final : public PhaseObserver {
 public:
  void phase(const char* name, std::int64_t begin_ns, std::int64_t end_ns) override {
    EXPECT_LE(begin_ns, end_ns);
    EXPECT_LE(last_end_, begin_ns);
    last_end_ = end_ns;
    names.emplace_back(name);
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
      comm.all_reduce(tnt::FusedBuffer({&view, 1}, TNT_FLOAT32), TNT_SUM, {.timeout = default_timeout, .observer = &observer});
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
    comm.all_reduce(tnt::FusedBuffer({&view, 1}, TNT_INT64), TNT_SUM, testing::call());
    EXPECT_EQ(values, std::vector<std::int64_t>(5000, 48 * 47 / 2));
  });
}

}  // namespace
}  // namespace tnt
