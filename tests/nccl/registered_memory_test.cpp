// Memory that is registered with NCCL: all ranks use it or none does, it outlives an abort, and failures end the job by name.
#include "comm/nccl/registered_memory.hpp"

#include <gtest/gtest.h>

#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::FakeNccl;
using testing::NcclRank;
using testing::run_nccl;

constexpr std::size_t count = 1000;

class RegisteredMemoryTest : public testing::NcclTest {
 protected:
  // Sums in memory of the communicator's, if it gives any. Returns whether it does.
  static bool sum(const NcclRank& rank) {
    const std::vector<float> ones(count, 1.0F);
    const auto memory = rank.comm.registered_memory(count * sizeof(float));
    if (!memory) return false;
    EXPECT_EQ(rank.device.pointer_attributes(memory.get()).kind, PointerAttributes::Kind::device);
    rank.device.write(memory.get(), ones.data(), count * sizeof(float));
    all_reduce(rank.comm, memory.get(), memory.get(), count, TNT_FLOAT32, TNT_SUM, "");
    rank.device.synchronize(rank.comm.stream());
    EXPECT_EQ(rank.device.values<float>(memory.get(), count), std::vector<float>(count, static_cast<float>(rank.comm.size())));
    return true;
  }
  static void expect_calls(long windows, long buffers) {
    for (const auto& [name, expected] : {std::pair{"ncclCommWindowRegister", windows},
                                         {"ncclCommWindowDeregister", windows},
                                         {"ncclCommRegister", buffers},
                                         {"ncclCommDeregister", buffers}}) {
      EXPECT_EQ(FakeNccl::count(name), expected) << name;
    }
  }
};

TEST_F(RegisteredMemoryTest, IsAWindow) {
  run_nccl(3, [](NcclRank& rank) { EXPECT_TRUE(sum(rank)); });
  expect_calls(3, 0);
}

TEST_F(RegisteredMemoryTest, IsABufferWhereNcclKnowsNoWindows) {
  FakeNccl::set("version", 22604);
  run_nccl(2, [](NcclRank& rank) { EXPECT_TRUE(sum(rank)); });
  expect_calls(0, 2);
}

TEST_F(RegisteredMemoryTest, IsABufferWhereTheGpusHaveNoWindows) {
  FakeNccl::set("no_windows", 1);
  run_nccl(2, [](NcclRank& rank) { EXPECT_TRUE(sum(rank)); });
  EXPECT_EQ(FakeNccl::count("ncclCommDeregister"), 2);
}

TEST_F(RegisteredMemoryTest, IsNotThereForOldLibrariesOneRankOrFixedAlgorithms) {
  run_nccl(1, [](NcclRank& rank) { EXPECT_FALSE(sum(rank)); });
  NcclOptions fixed = testing::options();
  fixed.deterministic = true;
  run_nccl(
      2, [](NcclRank& rank) { EXPECT_FALSE(sum(rank)); }, fixed);
  FakeNccl::set("version", 21805);
  run_nccl(2, [](NcclRank& rank) { EXPECT_FALSE(sum(rank)); });
}

// A rank without memory would take another algorithm than the others.
TEST_F(RegisteredMemoryTest, AllRanksDoWithoutIfOneMust) {
  run_nccl(3, [](NcclRank& rank) {
    if (rank.comm.rank() == 1) rank.device.fail_at(testing::Call::allocate);
    EXPECT_FALSE(sum(rank));
    EXPECT_TRUE(sum(rank));  // the job goes on
  });
}

TEST_F(RegisteredMemoryTest, ARankThatCannotRegisterEndsTheJob) {
  FakeNccl::set("window_fails", 1, 1);
  const std::string message = testing::common_nccl_error(3, TNT_SYSTEM, [](NcclRank& rank) { (void)sum(rank); });
  EXPECT_EQ(message.find("rank 1: registering memory (NCCL_WIN_ENABLE=0 and NCCL_LOCAL_REGISTER=0 do without): "
                         "ncclCommWindowRegister failed: unhandled system error"),
            0U)
      << message;
}

TEST_F(RegisteredMemoryTest, OutlivesAnAbort) {
  (void)testing::common_nccl_error(2, TNT_ABORTED, [](NcclRank& rank) {
    const auto memory = rank.comm.registered_memory(count);
    if (rank.comm.rank() == 0) rank.comm.abort(TNT_ABORTED, "enough");
    while (true) rank.comm.check();
  });
}

}  // namespace
}  // namespace tnt
