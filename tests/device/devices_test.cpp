// Devices by index: the errors if there are none, and that each is opened only once.
#include "device/devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.hpp"
#include "common/error.hpp"
#include "support/simulated_device.hpp"

namespace tnt {
namespace {

class DeviceLoad : public ::testing::Test {
 protected:
  ~DeviceLoad() override { set_device_source_for_tests(nullptr); }
};

std::string refusal(int index) {
  try {
    (void)open_device(index);
  } catch (const Error& error) {
    return fmt::format("{}: {}", status_name(error.status()), error.what());
  }
  return "opened";
}

TEST_F(DeviceLoad, TheReasonIsInTheErrorOfWhoAsks) {
  const DeviceSource none{.count = 0, .why_none = "the machine has none", .open = {}};
  set_device_source_for_tests(&none);
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(why_no_device(), "the machine has none");
  EXPECT_EQ(refusal(1), "TNT_UNSUPPORTED: device 1 cannot be used: the machine has none");
}

TEST_F(DeviceLoad, AnIndexThatIsNoneIsRefused) {
  const DeviceSource two{.count = 2, .why_none = "", .open = [](int) { return std::make_shared<testing::SimulatedDevice>(); }};
  set_device_source_for_tests(&two);
  EXPECT_EQ(refusal(2), "TNT_INVALID_ARGUMENT: there is no device 2: this process has 2, counted from 0");
  EXPECT_EQ(refusal(-1), "TNT_INVALID_ARGUMENT: there is no device -1: this process has 2, counted from 0");
}

TEST_F(DeviceLoad, ADeviceIsOpenedOnceAsLongAsSomebodyHasIt) {
  int opened = 0;
  const DeviceSource two{.count = 2, .why_none = "", .open = [&](int) {
                           ++opened;
                           return std::make_shared<testing::SimulatedDevice>();
                         }};
  set_device_source_for_tests(&two);
  auto first = open_device(0);
  const auto other = open_device(1);
  EXPECT_EQ(open_device(0), first);
  EXPECT_NE(other, first);
  EXPECT_EQ(opened, 2);
  first.reset();
  first = open_device(0);
  EXPECT_EQ(opened, 3);
}

std::string said_by_counting() {
  Settings settings;
  settings.log_level = LogLevel::info;
  configure_log(settings);
  ::testing::internal::CaptureStderr();
  (void)device_count();
  std::string said = ::testing::internal::GetCapturedStderr();
  configure_log({});
  return said;
}

DeviceSource source(int count, const std::string& why_none) { return {.count = count, .why_none = why_none, .open = {}}; }

TEST(DevicesOfTwoVendors, AmdsAreTakenWhereNvidiaHasNone) {
  const DeviceSource chosen = chosen_devices(source(0, "no driver"), source(2, ""));
  EXPECT_EQ(chosen.count, 2);
  EXPECT_EQ(chosen.why_none, "");
}

TEST(DevicesOfTwoVendors, BothReasonsAreGivenWhereThereAreNone) {
  const DeviceSource chosen = chosen_devices(source(0, "no driver"), source(0, "no GPU of AMD"));
  EXPECT_EQ(chosen.count, 0);
  EXPECT_EQ(chosen.why_none, "no driver; no GPU of AMD");
}

TEST(DevicesOfTwoVendors, NvidiasAreTakenAndAWarningSaysSo) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(chosen_devices(source(3, ""), source(0, "no GPU of AMD")).count, 3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(chosen_devices(source(3, ""), source(2, "")).count, 3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tarantella[0]: warning: this machine has devices of two vendors, 3 of NVIDIA and 2 of AMD: NVIDIA's are used "
            "(CUDA_VISIBLE_DEVICES=-1 hides them, and AMD's are used)\n");
}

TEST_F(DeviceLoad, TheLogSaysOnceWhyNothingIsThere) {
  const DeviceSource none{.count = 0, .why_none = "the machine has none", .open = {}};
  set_device_source_for_tests(&none);
  EXPECT_EQ(said_by_counting(), "tarantella[0]: info: no GPU is used: the machine has none\n");
  EXPECT_EQ(said_by_counting(), "");
  const DeviceSource one{.count = 1, .why_none = "", .open = {}};
  set_device_source_for_tests(&one);
  EXPECT_EQ(said_by_counting(), "");
}

// The machine's own device, if it has one.
TEST_F(DeviceLoad, AMachineHasDevicesOrAReason) {
  EXPECT_EQ(why_no_device().empty(), device_count() > 0) << why_no_device();
  if (device_count() == 0) {
    EXPECT_EQ(refusal(0), "TNT_UNSUPPORTED: device 0 cannot be used: " + why_no_device());
  }
}

}  // namespace
}  // namespace tnt
