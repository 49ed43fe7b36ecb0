// How ranks agree on NCCL before it connects them: a missing or different version is named on all ranks, and the job continues.
#include "comm/nccl/init.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::FakeNccl;
using testing::NcclTest;
using testing::options;
using testing::Progress;
using testing::SimulatedDevice;

class NcclStartTest : public NcclTest {
 protected:
  // make(host) throws the same on all ranks, which then continue without NCCL.
  static std::string refusal(int ranks, tnt_status_t status, const std::function<void(Communicator&)>& make) {
    return testing::common_error(ranks, status, [&](Communicator& host) {
      try {
        make(host);
      } catch (const Error&) {
        EXPECT_FALSE(host.async_error());
        barrier(host, call());
        throw;
      }
    });
  }
};

TEST_F(NcclStartTest, TheNamedLibraryIsOpened) {
  testing::run_threads(2, [](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    NcclOptions wanted = options();
    wanted.library = TNT_FAKE_NCCL;
    EXPECT_EQ(make_nccl_communicator(device, host, wanted)->version(), "NCCL 2.28.9");
  });
}

TEST_F(NcclStartTest, TwoVersionsAreNamed) {
  const auto newer = FakeNccl::open();
  FakeNccl::set("version", 21805);
  const auto older = FakeNccl::open();
  const std::string message = refusal(3, TNT_MISMATCH, [&](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    (void)make_nccl_communicator(device, host, options(), host.rank() == 2 ? older : newer);
  });
  EXPECT_EQ(message.find("rank 2 has NCCL 2.18.5 while rank 0 has NCCL 2.28.9: install"), 0U) << message;
}

TEST_F(NcclStartTest, DevicesOfTwoVendorsAreNamed) {
  const auto nvidias = FakeNccl::open();
  const auto amds = std::make_shared<const NcclLibrary>(TNT_FAKE_NCCL, Vendor::amd);
  const std::string message = refusal(2, TNT_MISMATCH, [&](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    (void)make_nccl_communicator(device, host, options(), host.rank() == 1 ? amds : nvidias);
  });
  EXPECT_EQ(message.find("rank 1 has RCCL 2.28.9 while rank 0 has NCCL 2.28.9, and devices of two vendors cannot reach each "
                         "other: give all ranks devices of one vendor"),
            0U)
      << message;
}

TEST_F(NcclStartTest, OtherOptionsAreNamed) {
  const auto library = FakeNccl::open();
  const std::string message = refusal(2, TNT_MISMATCH, [&](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    NcclOptions wanted = options();
    wanted.max_ctas = 4 + host.rank();
    (void)make_nccl_communicator(device, host, wanted, library);
  });
  EXPECT_EQ(message.find("rank 1 asks for NCCL with deterministic=0, max_ctas=5 while rank 0"), 0U) << message;
}

// What each rank is told if ranks 1 and 2 of three use the same GPU.
void expect_shared_gpu(const std::optional<std::string>& expected) {
  testing::run_threads(3, [&](Communicator& host) {
    SimulatedDevice device(std::min(host.rank(), 1), {.progress = Progress::thread});
    EXPECT_EQ(find_shared_gpu(device, host, options(), FakeNccl::open().get()), expected);
  });
}

TEST_F(NcclStartTest, OneGpuForTwoRanksIsSeen) {
  expect_shared_gpu("ranks 1 and 2 use the same GPU (1)");
  setenv("NCCL_HOSTID", "another", 1);
  expect_shared_gpu("ranks 1 and 2 use the same GPU (1)");  // on that host, all the same
  unsetenv("NCCL_HOSTID");
}

TEST_F(NcclStartTest, NewerOnesShareAGpuIfTheUserSaysSo) {
  FakeNccl::set("version", 23003);
  expect_shared_gpu("ranks 1 and 2 use the same GPU (1)");
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  expect_shared_gpu(std::nullopt);
  FakeNccl::set("version", 22809);  // too old
  expect_shared_gpu("ranks 1 and 2 use the same GPU (1)");
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

TEST_F(NcclStartTest, AnIdThatCannotBeMadeIsNamed) {
  FakeNccl::set("unique_id_fails", 1);
  const auto library = FakeNccl::open();
  const std::string message = testing::common_error(2, TNT_SYSTEM, [&](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    (void)make_nccl_communicator(device, host, options(), library);
  });
  EXPECT_NE(message.find("rank 0: ncclGetUniqueId failed: unhandled system error: the fake has no network interface"),
            std::string::npos)
      << message;
}

TEST_F(NcclStartTest, ThereIsOneIdUpTo128Ranks) {
  testing::run_threads(3, [](Communicator& host) {
    SimulatedDevice device(host.rank(), {.progress = Progress::thread});
    (void)make_nccl_communicator(device, host, options(), FakeNccl::open());
  });
  EXPECT_EQ(FakeNccl::count("ncclGetUniqueId"), 1);
  EXPECT_EQ(FakeNccl::count("ncclCommInitRankScalable"), 0);
}

TEST_F(NcclStartTest, ThereAreMoreIdsForMoreRanksWhereNcclTakesThem) {
  NcclOptions wanted = options();
  wanted.ranks_per_id = 2;
  const auto connect_five = [&] {
    testing::run_nccl(
        5, [](testing::NcclRank& rank) { EXPECT_EQ(rank.comm.size(), 5); }, wanted);
  };
  connect_five();
  EXPECT_EQ(FakeNccl::count("ncclGetUniqueId"), 3);
  EXPECT_EQ(FakeNccl::count("ncclCommInitRankScalable"), 5);
  FakeNccl::reset();
  FakeNccl::set("version", 22200);
  connect_five();
  EXPECT_EQ(FakeNccl::count("ncclGetUniqueId"), 1);
  EXPECT_EQ(FakeNccl::count("ncclCommInitRankConfig"), 5);
}

// The real library, if installed: without a GPU it reports that, with one it connects a rank to itself.
TEST(RealNccl, TakesOurCalls) {
  std::shared_ptr<const NcclLibrary> library;
  try {
    library = std::make_shared<const NcclLibrary>("");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  testing::run_threads(1, [&](Communicator& host) {
    SimulatedDevice device(0, {.progress = Progress::thread});
    try {
      const auto comm = make_nccl_communicator(device, host, options(), library);
      EXPECT_EQ(comm->version(), library->name());
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_SYSTEM);
      EXPECT_EQ(std::string(error.what()).find("rank 0: "), 0U) << error.what();
      EXPECT_NE(std::string(error.what()).find("failed: unhandled cuda error"), std::string::npos) << error.what();
      EXPECT_STREQ(host.async_error()->what(), error.what());
    }
  });
}

TEST(NcclConfig, DoesNotBlockWhileItConnectsAndLeavesTheRestToNccl) {
  const nccl::ncclConfig_t config = nccl_config({});
  EXPECT_EQ(config.size, sizeof(config));
  EXPECT_EQ(config.blocking, 0);
  EXPECT_EQ(config.minCTAs, nccl::undefined_int);
  EXPECT_EQ(config.maxCTAs, nccl::undefined_int);
  EXPECT_EQ(config.collnetEnable, nccl::undefined_int);
}

TEST(NcclConfig, DeterministicPinsTheChannels) {
  const nccl::ncclConfig_t config = nccl_config({.deterministic = true});
  EXPECT_EQ(config.minCTAs, 16);
  EXPECT_EQ(config.maxCTAs, 16);
  EXPECT_EQ(config.collnetEnable, 0);
  EXPECT_EQ(nccl_config({.deterministic = true, .max_ctas = 4}).minCTAs, 4);
  EXPECT_EQ(nccl_config({.max_ctas = 4}).maxCTAs, 4);
  EXPECT_EQ(nccl_config({.max_ctas = 4}).minCTAs, nccl::undefined_int);
}

TEST(NcclConfig, DeterministicLeavesWhatTheUserHasSet) {
  setenv("NCCL_PROTO", "LL128", 1);
  unsetenv("NCCL_ALGO");
  pin_environment();
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "LL128");
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  unsetenv("NCCL_PROTO");
}

}  // namespace
}  // namespace tnt
