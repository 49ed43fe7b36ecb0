// Without a GPU every test is skipped, with the reason, so that it does not count as passed.
#include <gtest/gtest.h>

#include "device/devices.hpp"

namespace {

class WithoutDevice : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*test*/) override { GTEST_SKIP() << tnt::why_no_device(); }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (tnt::device_count() == 0) ::testing::UnitTest::GetInstance()->listeners().Append(new WithoutDevice);
  return RUN_ALL_TESTS();
}
