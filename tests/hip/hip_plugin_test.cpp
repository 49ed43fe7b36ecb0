// libtarantella_hip.so over a fake HIP: its host code, which is that of libtarantella_cuda.so, and the launches of its kernels.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/error.hpp"
#include "device/device_plugin.hpp"
#include "device/handles.hpp"
#include "hip/fake_hip.hpp"
#include "kernels/cuda/bucket_layout.hpp"
#include "support/symbols.hpp"

extern "C" int hipGetDevice(int* device);  // an enum, whose 0 is success

namespace tnt {
namespace {

using testing::FakeHip;

const DevicePlugin& plugin() {
  void* library = dlopen(TNT_HIP_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const DevicePlugin* (*)()>(dlsym(library, device_plugin_symbol))();
}

class HipPlugin : public ::testing::Test {
 protected:
  void SetUp() override { FakeHip::reset(2); }
  void TearDown() override { EXPECT_EQ(FakeHip::misuse(), std::vector<std::string>{}); }

  static std::unique_ptr<Device> open(int index) {
    tnt_status_t status = TNT_SUCCESS;
    std::string message;
    std::unique_ptr<Device> device(plugin().open(index, &status, &message));
    EXPECT_NE(device, nullptr) << message;
    return device;
  }
  static int current_device() {
    int device = -1;
    EXPECT_EQ(hipGetDevice(&device), 0);
    return device;
  }
};

TEST_F(HipPlugin, ShowsItsEntryAndNothingElse) {
  const std::set<std::string> symbols = testing::exported_symbols(TNT_HIP_PLUGIN);
  ASSERT_EQ(symbols.size(), 1U);
  EXPECT_EQ(symbols.begin()->substr(0, symbols.begin()->find('@')), device_plugin_symbol);
  EXPECT_STREQ(plugin().version, tnt_version());
}

TEST_F(HipPlugin, CountsDevicesOrSaysWhyThereIsNone) {
  std::string reason;
  EXPECT_EQ(plugin().count(&reason), 2);
  EXPECT_EQ(reason, "");
  FakeHip::reset(0);
  EXPECT_EQ(plugin().count(&reason), 0);
  EXPECT_EQ(reason, "AMD's runtime (HIP) shows no GPU to this process (the driver amdgpu with /dev/kfd, HIP_VISIBLE_DEVICES?)");
  tnt_status_t status = TNT_SUCCESS;
  EXPECT_EQ(plugin().open(0, &status, &reason), nullptr);
  EXPECT_EQ(status, TNT_SYSTEM);
}

TEST_F(HipPlugin, WorksOnItsDeviceAndLeavesTheThreadsCurrentOne) {
  const auto device = open(1);
  EXPECT_EQ(device->index(), 1);
  EXPECT_EQ(device->vendor(), Vendor::amd);
  EXPECT_EQ(device->bus_id(), "0000:c6:00.0");
  std::thread([&] {
    const Stream stream(*device, Priority::high);
    const Stream other(*device);
    const Event event(*device);
    EXPECT_FALSE(event.completed());  // an answer, not an error that a later call would find
    EXPECT_EQ(FakeHip::last_error(), 0);
    const PinnedBuffer pinned(*device, 64);
    const DeviceBuffer memory(*device, 64, stream.get());
    device->fill_zero(memory.get(), 64, stream.get());
    std::memset(pinned.get(), 7, 64);
    device->copy(memory.get(), pinned.get(), 32, stream.get());
    EXPECT_EQ(static_cast<char*>(memory.get())[31], 7);
    EXPECT_EQ(static_cast<char*>(memory.get())[32], 0);
    event.record(stream.get());
    event.wait_on(other.get());
    EXPECT_TRUE(event.completed());
    EXPECT_TRUE(device->idle(other.get()));
    device->synchronize(other.get());
    EXPECT_FALSE(device->capturing(stream.get()));
    EXPECT_EQ(device->device_of(stream.get()), 1);
    device->with_current_device([] { EXPECT_EQ(current_device(), 1); });
    EXPECT_EQ(current_device(), 0);
  }).join();
  EXPECT_EQ(FakeHip::allocations(), 0U);
}

TEST_F(HipPlugin, KnowsWhereMemoryIs) {
  const auto device = open(1);
  const Stream stream(*device);
  const DeviceBuffer memory(*device, 64, stream.get());
  const PinnedBuffer pinned(*device, 64);
  int local = 0;
  EXPECT_EQ(device->pointer_attributes(memory.get()).kind, PointerAttributes::Kind::device);
  EXPECT_EQ(device->pointer_attributes(memory.get()).device, 1);
  EXPECT_EQ(device->pointer_attributes(pinned.get()).kind, PointerAttributes::Kind::pinned);
  EXPECT_EQ(device->pointer_attributes(&local).kind, PointerAttributes::Kind::host);
  EXPECT_EQ(FakeHip::last_error(), 0);
}

TEST_F(HipPlugin, SaysHowMuchMemoryIsMissing) {
  const auto device = open(0);
  const Stream stream(*device);
  try {
    (void)device->allocate(std::size_t{2} << 40, stream.get());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("GPU 0 has 3 of 80 MiB free, and 2097152 are needed at once"), 0U) << error.what();
  }
}

TEST_F(HipPlugin, TheLegacyStreamIsHipsNullStream) {
  const auto device = open(0);
  const std::vector<char> from(8, 'a');
  std::vector<char> to(8);
  device->copy(to.data(), from.data(), 8, reinterpret_cast<StreamHandle>(legacy_stream));
  device->copy(to.data(), from.data(), 8, reinterpret_cast<StreamHandle>(per_thread_stream));
  EXPECT_EQ(FakeHip::streams_used(), (std::vector<void*>{nullptr, reinterpret_cast<void*>(per_thread_stream)}));
  tnt_status_t status = TNT_SUCCESS;
  std::string message;
  EXPECT_EQ(plugin().device_of(reinterpret_cast<StreamHandle>(legacy_stream), &status, &message), 0);
}

TEST_F(HipPlugin, CallsFunctionsOfTheHost) {
  const auto device = open(0);
  const Stream stream(*device);
  std::string order;
  device->launch_host_func([](void* data) { *static_cast<std::string*>(data) += "a"; }, &order, stream.get());
  device->launch_host_func([](void* data) { *static_cast<std::string*>(data) += "b"; }, &order, stream.get());
  EXPECT_EQ(order, "ab");
}

TEST_F(HipPlugin, LoadsAllKernelsWithTheDevice) {
  const auto device = open(1);
  EXPECT_GE(FakeHip::kernels(), 30U);
  EXPECT_GE(FakeHip::loaded_kernels(1), 30U);
  EXPECT_EQ(FakeHip::loaded_kernels(0), 0U);
}

TEST_F(HipPlugin, LaunchesKernelsOnItsStreams) {
  const auto device = open(1);
  const Stream stream(*device);
  constexpr std::size_t bytes = std::size_t{300} * 400;
  const DeviceBuffer memory(*device, 2 * bytes, stream.get());
  const std::vector<gpu::TensorShape> shapes(300, {.count = 100});
  const gpu::BucketLayout layout = gpu::make_layout(shapes, TNT_FLOAT32);
  const std::vector<gpu::TensorArgument> tensors(300, {.in = memory.get()});
  device->pack(layout.launch(layout.tiles.data(), tensors.data(), static_cast<std::byte*>(memory.get()) + bytes), stream.get());
  const void* const sources[] = {memory.get(), memory.get()};
  device->reduce(memory.get(), sources, 2, 10000, TNT_BFLOAT16, stream.get());
  const std::vector<testing::Launch> launches = FakeHip::launches();
  ASSERT_EQ(launches.size(), 3U);  // HIP's parameters hold 240 tensors, as those of old CUDA
  EXPECT_NE(launches[0].kernel.find("lean_pack_kernel"), std::string::npos) << launches[0].kernel;
  EXPECT_EQ(launches[0].blocks, 240U);
  EXPECT_EQ(launches[1].kernel, launches[0].kernel);
  EXPECT_EQ(launches[1].blocks, 60U);
  EXPECT_NE(launches[2].kernel.find("reduce_kernel"), std::string::npos) << launches[2].kernel;
  for (const testing::Launch& launch : launches) {
    EXPECT_EQ(launch.device, 1);
    EXPECT_EQ(launch.stream, stream.get());
    EXPECT_EQ(launch.threads, 256U);
  }
}

TEST_F(HipPlugin, KeepsObjectsInGraphsOrSaysThatHipIsTooOld) {
  const auto device = open(0);
  const Stream stream(*device);
  auto object = std::make_shared<int>(1);
  FakeHip::begin_capture();
  EXPECT_TRUE(device->capturing(stream.get()));
  std::string message;
  try {
    device->keep_in_graph(stream.get(), object);
  } catch (const Error& error) {
    message = error.what();
  }
#ifdef TNT_HIP_HAS_USER_OBJECTS
  EXPECT_EQ(message, "");
  EXPECT_EQ(object.use_count(), 2);
#else
  EXPECT_NE(message.find(", with which this was built, does not have it: build it with a newer ROCm"), std::string::npos)
      << message;
#endif
  FakeHip::end_capture();
  EXPECT_EQ(object.use_count(), 1);
}

}  // namespace
}  // namespace tnt
