// libtarantella_cuda.so: it loads on any machine, does not load another CUDA library, and exports only its entry point; with a
// GPU also that the device works.
#include <gtest/gtest.h>

#ifdef TNT_CUDA_PLUGIN

#include <dlfcn.h>

#include <memory>
#include <set>
#include <string>

#include "device/device_plugin.hpp"
#include "device/devices.hpp"
#include "device/handles.hpp"
#include "support/symbols.hpp"

namespace tnt {
namespace {

using tnt::testing::exported_symbols;
using tnt::testing::output_of;

TEST(CudaPlugin, NeedsNoCudaLibrary) {
  const std::string needed = output_of(TNT_READELF " -d " TNT_CUDA_PLUGIN);
  EXPECT_NE(needed.find("(NEEDED)"), std::string::npos) << needed;
  for (const char* library : {"libcudart", "libcuda.", "libnccl"}) EXPECT_EQ(needed.find(library), std::string::npos) << needed;
}

TEST(CudaPlugin, ShowsItsEntryAndNothingElse) {
  const std::set<std::string> symbols = exported_symbols(TNT_CUDA_PLUGIN);
  ASSERT_EQ(symbols.size(), 1U);
  EXPECT_EQ(symbols.begin()->substr(0, symbols.begin()->find('@')), device_plugin_symbol);
}

TEST(CudaPlugin, SaysWhyThereIsNoDevice) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  void* library = dlopen(TNT_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<const DevicePlugin* (*)()>(dlsym(library, device_plugin_symbol));
  ASSERT_NE(entry, nullptr);
  const DevicePlugin& plugin = *entry();
  EXPECT_STREQ(plugin.version, tnt_version());
  std::string reason;
  EXPECT_EQ(plugin.count(&reason), 0);
  EXPECT_NE(reason.find("NVIDIA driver"), std::string::npos) << reason;
  EXPECT_EQ(why_no_device().find(reason), 0U) << why_no_device();  // this file is the one that the library loads
#ifdef TNT_HAS_HIP_PLUGIN                                          // with the real runtime of AMD
  EXPECT_EQ(why_no_device().find("; AMD's runtime (HIP) "), reason.size()) << why_no_device();
#endif
  tnt_status_t status = TNT_SUCCESS;
  std::string message;
  EXPECT_EQ(plugin.open(0, &status, &message), nullptr);
  EXPECT_NE(status, TNT_SUCCESS);
  EXPECT_NE(message, "");
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << why_no_device();
    device = open_device(0);
  }
  std::shared_ptr<Device> device;
};

TEST_F(CudaDeviceTest, MemoryGoesThereAndBackInOrder) {
  const Stream one(*device, Priority::high);
  const Stream two(*device);
  const Event event(*device);
  constexpr std::size_t bytes = 1 << 20;
  const PinnedBuffer from(*device, bytes);
  const PinnedBuffer to(*device, bytes);
  std::fill_n(static_cast<unsigned char*>(from.get()), bytes, static_cast<unsigned char>(7));
  const DeviceBuffer memory(*device, bytes, one.get());
  device->copy(memory.get(), from.get(), bytes, one.get());
  device->fill_zero(memory.get(), bytes / 2, one.get());
  event.record(one.get());
  event.wait_on(two.get());
  device->copy(to.get(), memory.get(), bytes, two.get());
  device->synchronize(two.get());
  EXPECT_TRUE(event.completed());
  EXPECT_TRUE(device->idle(one.get()));
  EXPECT_EQ(static_cast<unsigned char*>(to.get())[0], 0);
  EXPECT_EQ(static_cast<unsigned char*>(to.get())[bytes - 1], 7);
}

TEST_F(CudaDeviceTest, PlacesAndStreamsAreKnown) {
  const Stream stream(*device);
  const DeviceBuffer memory(*device, 256, stream.get());
  const PinnedBuffer pinned(*device, 256);
  int local = 0;
  EXPECT_EQ(device->pointer_attributes(memory.get()).kind, PointerAttributes::Kind::device);
  EXPECT_EQ(device->pointer_attributes(memory.get()).device, 0);
  EXPECT_EQ(device->pointer_attributes(pinned.get()).kind, PointerAttributes::Kind::pinned);
  EXPECT_EQ(device->pointer_attributes(&local).kind, PointerAttributes::Kind::host);
  EXPECT_EQ(device->device_of(stream.get()), 0);
  EXPECT_FALSE(device->capturing(stream.get()));
}

TEST_F(CudaDeviceTest, FunctionsOfTheHostAreCalledInOrder) {
  const Stream stream(*device);
  std::string order;
  device->launch_host_func([](void* data) { *static_cast<std::string*>(data) += "a"; }, &order, stream.get());
  device->launch_host_func([](void* data) { *static_cast<std::string*>(data) += "b"; }, &order, stream.get());
  device->synchronize(stream.get());
  EXPECT_EQ(order, "ab");
}

TEST_F(CudaDeviceTest, KernelsRunOnItsStreams) {
  const Stream stream(*device);
  const PinnedBuffer values(*device, 4 * sizeof(float));
  auto* at = static_cast<float*>(values.get());
  std::fill_n(at, 4, 1.5F);
  const DeviceBuffer x(*device, 4 * sizeof(float), stream.get());
  device->copy(x.get(), at, 4 * sizeof(float), stream.get());
  const void* const sources[] = {x.get(), x.get(), x.get()};
  device->reduce(x.get(), sources, 3, 4, TNT_FLOAT32, stream.get());
  device->copy(at, x.get(), 4 * sizeof(float), stream.get());
  device->synchronize(stream.get());
  EXPECT_EQ(at[3], 4.5F);
}

}  // namespace
}  // namespace tnt

#else

TEST(CudaPlugin, IsNotInThisBuild) { GTEST_SKIP() << "built without a CUDA toolkit"; }

#endif
