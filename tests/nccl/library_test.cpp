// How NCCL is found, which functions are used, and its error messages.
#include "comm/nccl/library.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/clock.hpp"
#include "base/settings.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::FakeNccl;

class NcclLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override { FakeNccl::reset(); }

  static std::string refusal(const std::string& named, Vendor vendor = Vendor::nvidia) {
    try {
      const NcclLibrary library(named, vendor);
      ADD_FAILURE() << named << " was taken";
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
      return error.what();
    }
  }
};

TEST_F(NcclLibraryTest, TheNamedFileIsTaken) {
  const NcclLibrary library(TNT_FAKE_NCCL);
  EXPECT_EQ(library.version(), 22809);
  EXPECT_EQ(library.name(), "NCCL 2.28.9");
  EXPECT_TRUE(std::filesystem::equivalent(library.file(), TNT_FAKE_NCCL)) << library.file();
}

// As the environment of a job sets it. A copy of the file is another library, which reads the environment again.
TEST_F(NcclLibraryTest, TheEnvironmentNamesItAndSaysHowTheFakeFails) {
  const std::filesystem::path copy = std::filesystem::path(::testing::TempDir()) / fmt::format("libnccl.so.{}", getpid());
  std::filesystem::copy_file(TNT_FAKE_NCCL, copy, std::filesystem::copy_options::overwrite_existing);
  (void)setenv("TNT_NCCL_LIBRARY", copy.c_str(), 1);                  // NOLINT(concurrency-mt-unsafe)
  (void)setenv("FAKE_NCCL", "version=21805,remote_error_at@1=2", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto library = std::make_shared<const NcclLibrary>(read_settings().nccl_library);
  EXPECT_EQ(library->name(), "NCCL 2.18.5");  // the state is made with the first call
  (void)unsetenv("FAKE_NCCL");                // NOLINT(concurrency-mt-unsafe)
  (void)unsetenv("TNT_NCCL_LIBRARY");         // NOLINT(concurrency-mt-unsafe)
  std::filesystem::remove(copy);
  const std::string message = testing::common_error(2, TNT_SYSTEM, [&](Communicator& host) {
    testing::SimulatedDevice device(host.rank(), {.progress = testing::Progress::thread});
    const auto comm = make_nccl_communicator(device, host, testing::options(0.4), library);
    const testing::OnDevice data(device, comm->stream(), testing::Array(TNT_FLOAT32, 4));
    for (int i = 0; i < 2; ++i) all_reduce(*comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, "");
    for (const Deadline deadline(testing::default_timeout); !deadline.passed();) {
      comm->throw_if_aborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_EQ(message.find("rank 1: all_reduce sum of 4 float32 (operation 2): NCCL 2.18.5 failed: remote process exited"), 0U)
      << message;
}

TEST_F(NcclLibraryTest, ANamedFileThatIsNoneIsNamed) {
  const std::string message = refusal("/nowhere/libnccl.so.2");
  EXPECT_EQ(message.find("TNT_NCCL_LIBRARY=/nowhere/libnccl.so.2 cannot be loaded: "), 0U) << message;
}

TEST_F(NcclLibraryTest, ALibraryThatIsNotNcclIsRefused) {
  const std::string message = refusal("libm.so.6");
  EXPECT_NE(message.find("without ncclGetVersion, "), std::string::npos) << message;
  EXPECT_NE(message.find("2.14.0 or newer is needed: install"), std::string::npos) << message;
}

TEST_F(NcclLibraryTest, NewerFunctionsAreTakenWhereTheVersionHasThem) {
  struct Case {
    int version;
    bool split;
    bool scalable;
    bool all_to_all;
  };
  for (const Case& each : {Case{21400, false, false, false}, Case{21805, false, false, false}, Case{22304, true, true, false},
                           Case{22707, true, true, false}, Case{22809, true, true, true}, Case{23003, true, true, true}}) {
    FakeNccl::set("version", each.version);
    const NcclLibrary library(TNT_FAKE_NCCL);
    EXPECT_EQ(library->CommSplit != nullptr, each.split) << each.version;
    EXPECT_EQ(library->CommInitRankScalable != nullptr, each.scalable) << each.version;
    EXPECT_EQ(library->AlltoAll != nullptr, each.all_to_all) << each.version;
  }
}

TEST_F(NcclLibraryTest, OneThatIsTooOldIsRefused) {
  FakeNccl::set("version", 21200);
  const std::string message = refusal(TNT_FAKE_NCCL);
  EXPECT_NE(message.find("is NCCL 2.12.0, but 2.14.0 or newer is needed"), std::string::npos) << message;
}

TEST_F(NcclLibraryTest, TheWheelsOfItsSitePackagesAreTried) {
  const auto files = nccl_wheels("/usr/lib/python3/site-packages/tarantella/libtarantella.so.0.1");
  const std::string twelve = "/usr/lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2";
  const std::string thirteen = "/usr/lib/python3/site-packages/nvidia/cu13/lib/libnccl.so.2";
  const auto first = std::find(files.begin(), files.end(), twelve);
  ASSERT_NE(first, files.end());
  EXPECT_LT(first, std::find(files.begin(), files.end(), thirteen));
  EXPECT_NE(files.back(), files.front());
}

TEST_F(NcclLibraryTest, AnErrorIsSaidInItsWords) {
  FakeNccl::set("unique_id_fails", 1);
  const NcclLibrary library(TNT_FAKE_NCCL);
  nccl::ncclUniqueId id;
  try {
    TNT_NCCL(library, GetUniqueId, &id);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_SYSTEM);
    const std::string message = error.what();
    EXPECT_EQ(message.find("ncclGetUniqueId failed: unhandled system error: the fake has no network interface (NCCL 2.28.9, "
                           "library_test.cpp:"),
              0U)
        << message;
  }
}

TEST_F(NcclLibraryTest, InProgressIsNoError) {
  const NcclLibrary library(TNT_FAKE_NCCL);
  EXPECT_EQ(check_nccl(nccl::ncclInProgress, "ncclAllReduce", library, "file", 1), nccl::ncclInProgress);
}

// The system's library, if there is one; its other functions need a GPU.
TEST_F(NcclLibraryTest, ARealOneIsTakenIfThereIsOne) {
  try {
    const NcclLibrary library("");
    EXPECT_GE(library.version(), 21400);
    EXPECT_NE(library.file().find("libnccl.so.2"), std::string::npos) << library.file();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no NCCL was found ("), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("pip install nvidia-nccl-cu12"), std::string::npos) << error.what();
  }
}

// AMD's library has other names, and the same functions.
class RcclLibraryTest : public NcclLibraryTest {
 protected:
  static std::shared_ptr<const NcclLibrary> loaded() {  // by its name, as in a process that has loaded it
    EXPECT_NE(dlopen(TNT_FAKE_RCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    return std::make_shared<const NcclLibrary>("", Vendor::amd);
  }
};

TEST_F(RcclLibraryTest, IsTakenForAmdsDevices) {
  const auto library = loaded();
  EXPECT_EQ(library->name(), "RCCL 2.28.9");
  EXPECT_TRUE(std::filesystem::equivalent(library->file(), TNT_FAKE_RCCL)) << library->file();
  EXPECT_NE((*library)->AlltoAll, nullptr);
  testing::run_threads(2, [&](Communicator& host) {
    testing::SimulatedDevice device(host.rank(), {.progress = testing::Progress::thread});
    const auto comm = make_nccl_communicator(device, host, testing::options(), library);
    EXPECT_EQ(comm->version(), "RCCL 2.28.9");
    testing::Array sum(TNT_FLOAT32, 1000);
    for (std::size_t i = 0; i < sum.count(); ++i) sum.set(i, static_cast<double>(host.rank() + 1));
    const testing::OnDevice data(device, comm->stream(), sum);
    all_reduce(*comm, data.get(), data.get(), sum.count(), TNT_FLOAT32, TNT_SUM, "");
    device.synchronize(comm->stream());
    EXPECT_EQ(data.read().get(999), 3.0);
  });
}

TEST_F(RcclLibraryTest, TheSettingNamesIt) {
  EXPECT_EQ(NcclLibrary(TNT_FAKE_NCCL, Vendor::amd).name(), "RCCL 2.28.9");
  EXPECT_EQ(refusal("/nowhere/librccl.so.1", Vendor::amd).find("TNT_NCCL_LIBRARY=/nowhere/librccl.so.1 cannot be loaded: "),
            0U);
}

TEST_F(RcclLibraryTest, OneThatIsTooOldIsRefused) {
  FakeNccl::set("version", 21200);
  const std::string message = refusal(TNT_FAKE_NCCL, Vendor::amd);
  EXPECT_NE(message.find("is RCCL 2.12.0, but 2.14.0 or newer is needed: install ROCm's package rccl"), std::string::npos)
      << message;
}

TEST_F(RcclLibraryTest, IsMissedInOneSentence) {
  if (dlopen("librccl.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr)
    GTEST_SKIP() << "there is one, or another test has loaded the fake";
  const std::string message = refusal("", Vendor::amd);
  EXPECT_EQ(message.find("no RCCL was found ("), 0U) << message;
  EXPECT_NE(message.find("librccl.so.1: cannot open"), std::string::npos) << message;
  EXPECT_NE(message.find("): install ROCm's package rccl, or name the file in TNT_NCCL_LIBRARY"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
