// CUDA's default streams in the C API: they belong to the device that is current in the calling thread, which is not device 0.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "device/devices.hpp"
#include "nccl/nccl_job.hpp"
#include "tarantella/tarantella.h"

namespace tnt {
namespace {

using testing::Array;
using testing::SimulatedDevice;

class DefaultStreams : public testing::NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    setenv("TNT_NCCL_LIBRARY", TNT_FAKE_NCCL, 1);
    set_device_source_for_tests(&source_);
    ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS) << tnt_last_error();
  }
  void TearDown() override {
    SimulatedDevice::set_current(0);
    EXPECT_EQ(tnt_finalize(), TNT_SUCCESS) << tnt_last_error();
    set_device_source_for_tests(nullptr);
    NcclTest::TearDown();
  }

  std::shared_ptr<SimulatedDevice> open(int index) {
    opened_.insert(index);
    auto device = devices_[index].lock();
    if (device == nullptr) {
      device = std::make_shared<SimulatedDevice>(index, testing::SimulationOptions{.progress = testing::Progress::thread});
      devices_[index] = device;
    }
    return device;
  }

  std::set<int> opened_;
  std::map<int, std::weak_ptr<SimulatedDevice>> devices_;
  SimulatedDevice any_{0};  // answers as every device
  DeviceSource source_{2, "", [this](int index) { return open(index); },
                       [this](StreamHandle stream) { return any_.device_of(stream); }};
};

TEST_F(DefaultStreams, AreOfTheCallersDevice) {
  for (const std::uintptr_t number : {legacy_stream, per_thread_stream}) {
    auto* const stream = reinterpret_cast<tnt_stream_t>(number);  // NOLINT(performance-no-int-to-ptr)
    tnt_comm_t world = nullptr;
    tnt_comm_t comm = nullptr;
    ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
    ASSERT_EQ(tnt_comm_split(world, 0, 0, &comm), TNT_SUCCESS);
    SimulatedDevice::set_current(1);
    const auto device = open(1);
    {
      const Stream own(*device);
      const testing::OnDevice data(*device, own.get(), testing::repeated(TNT_FLOAT32, 4, [](auto) { return 3.0; }));
      EXPECT_EQ(tnt_all_reduce(comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, stream, nullptr), TNT_SUCCESS)
          << tnt_last_error();
      device->synchronize(stream);
      EXPECT_EQ(data.read().get(3), 3.0);
      SimulatedDevice::set_current(0);
      EXPECT_EQ(tnt_all_reduce(comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, stream, nullptr), TNT_INVALID_ARGUMENT);
      EXPECT_STREQ(tnt_last_error(), "the stream is of device 0, but this communicator works on device 1 already");
    }
    EXPECT_EQ(tnt_comm_destroy(comm), TNT_SUCCESS);
  }
  EXPECT_EQ(opened_, std::set<int>{1});
}

class ConnectedDevices : public DefaultStreams {};

TEST_F(ConnectedDevices, AreThoseThatAreNamed) {
  tnt_comm_t world = nullptr;
  tnt_comm_t comm = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  ASSERT_EQ(tnt_comm_split(world, 0, 0, &comm), TNT_SUCCESS);
  EXPECT_EQ(tnt_comm_connect_device(comm, 2), TNT_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tnt_last_error()).find("there is no device 2"), std::string::npos) << tnt_last_error();
  EXPECT_TRUE(opened_.empty());
  EXPECT_EQ(tnt_comm_connect_device(comm, 1), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(opened_, std::set<int>{1});  // before any call with a stream
  EXPECT_EQ(tnt_comm_connect_device(comm, 1), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(tnt_comm_connect_device(comm, 0), TNT_INVALID_ARGUMENT);
  EXPECT_STREQ(tnt_last_error(), "device is 0, but this communicator works on device 1 already");
  const auto device = open(1);
  {
    const Stream stream(*device);
    const testing::OnDevice data(*device, stream.get(), testing::repeated(TNT_FLOAT32, 4, [](auto) { return 3.0; }));
    EXPECT_EQ(tnt_all_reduce(comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, stream.get(), nullptr), TNT_SUCCESS)
        << tnt_last_error();
    EXPECT_EQ(data.read().get(3), 3.0);
  }
  EXPECT_EQ(tnt_comm_destroy(comm), TNT_SUCCESS);
}

class ReducersOnDevices : public DefaultStreams {};

// For sums that do not depend on the ranks NCCL only moves bytes: pinning its algorithms would slow down the whole process.
TEST_F(ReducersOnDevices, PinNcclForRunsAlone) {
  unsetenv("NCCL_ALGO");
  tnt_comm_t world = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  const tnt_tensor_t tensor{"w", 8, TNT_FLOAT32};
  for (const tnt_determinism_t determinism : {TNT_DETERMINISM_DEFAULT, TNT_DETERMINISM_RANKS}) {
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.device = 1;
    options.determinism = determinism;
    tnt_reducer_t reducer = nullptr;
    ASSERT_EQ(tnt_reducer_create(world, &tensor, 1, &options, &reducer), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(std::getenv("NCCL_ALGO"), nullptr);
    EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
  }
}

TEST_F(ReducersOnDevices, ADeviceIsCheckedByOpeningIt) {
  EXPECT_EQ(tnt_device_check(1), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(opened_, std::set<int>{1});
  EXPECT_EQ(tnt_device_check(2), TNT_INVALID_ARGUMENT);
  source_.open = [](int) -> std::shared_ptr<Device> { fail(TNT_SYSTEM, "no kernel image is available"); };
  EXPECT_EQ(tnt_device_check(0), TNT_SYSTEM);
  EXPECT_STREQ(tnt_last_error(), "no kernel image is available");
}

class CallGroupWithStreams : public DefaultStreams {};

// Collectives of two communicators on two streams, and one in host memory.
TEST_F(CallGroupWithStreams, IsEnqueuedAtTheEnd) {
  tnt_comm_t world = nullptr;
  tnt_comm_t comm = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  ASSERT_EQ(tnt_comm_split(world, 0, 0, &comm), TNT_SUCCESS);
  SimulatedDevice::set_current(1);
  const auto device = open(1);
  {
    const Stream first(*device);
    const Stream second(*device);
    const testing::OnDevice in(*device, first.get(), testing::repeated(TNT_FLOAT32, 4, [](auto) { return 3.0; }));
    const testing::OnDevice out(*device, second.get(), Array(TNT_FLOAT32, 4));
    const testing::OnDevice other(*device, first.get(), Array(TNT_FLOAT32, 4));
    const float host_in = 5;
    float host_out = 0;
    const auto all_reduce = [&](tnt_comm_t on, const testing::OnDevice& to, StreamHandle stream) {
      return tnt_all_reduce(on, in.get(), to.get(), 4, TNT_FLOAT32, TNT_SUM, stream, nullptr);
    };
    ASSERT_EQ(tnt_group_start(), TNT_SUCCESS);
    EXPECT_EQ(all_reduce(world, out, second.get()), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_barrier(world, first.get(), nullptr), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(all_reduce(comm, other, first.get()), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(tnt_all_reduce(comm, &host_in, &host_out, 1, TNT_FLOAT32, TNT_SUM, nullptr, nullptr), TNT_SUCCESS);
    EXPECT_EQ(testing::FakeNccl::count("ncclAllReduce"), 0);
    EXPECT_EQ(tnt_group_end(), TNT_SUCCESS) << tnt_last_error();
    EXPECT_EQ(testing::FakeNccl::count("ncclAllReduce"), 3);
    EXPECT_EQ(out.read().get(3), 3.0);
    EXPECT_EQ(other.read().get(3), 3.0);
    EXPECT_EQ(host_out, 5.0F);
  }
  EXPECT_EQ(tnt_comm_destroy(comm), TNT_SUCCESS) << tnt_last_error();
}

}  // namespace
}  // namespace tnt
