// The CUDA device leaves contexts on its own device only, whatever thread calls it, and knows to which device a stream belongs.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "common/error.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/fake_cuda.hpp"
#include "device/handles.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt {
namespace {

using testing::FakeCuda;
using Devices = std::set<int>;

class CudaContexts : public ::testing::Test {
 protected:
  void SetUp() override { FakeCuda::reset(2); }
  void TearDown() override { EXPECT_EQ(FakeCuda::misuse(), std::vector<std::string>{}); }
};

// A thread of the library has never chosen a device, so a call without a context would create one on device 0.
void in_new_thread(const std::function<void()>& body) { std::thread(body).join(); }

void use(CudaDevice& device) {
  const Stream stream(device, Priority::high);
  const Stream other(device);
  const Event event(device);
  const PinnedBuffer pinned(device, 64);
  const DeviceBuffer memory(device, 64, stream.get());
  device.fill_zero(memory.get(), 64, stream.get());
  device.copy(pinned.get(), memory.get(), 64, stream.get());
  event.record(stream.get());
  event.wait_on(other.get());
  EXPECT_TRUE(event.completed());
  EXPECT_TRUE(device.idle(other.get()));
  device.synchronize(other.get());
  EXPECT_FALSE(device.capturing(stream.get()));
  EXPECT_EQ(device.pointer_attributes(memory.get()).device, 1);
  EXPECT_EQ(device.device_of(stream.get()), 1);
  device.launch_host_func([](void*) {}, nullptr, stream.get());
  device.pack({}, stream.get());
  device.unpack({}, stream.get());
  device.accumulate({}, stream.get());
  device.sum_statistics(nullptr, 0, nullptr, stream.get());
  device.clip_factor(nullptr, 0, 1.0, nullptr, stream.get());
  const Event timed(device, Timed::yes);
  timed.record(stream.get());
  EXPECT_EQ(timed.seconds_until(timed), 0.0);
  device.reduce(nullptr, nullptr, 0, 0, TNT_FLOAT32, stream.get());
  device.with_current_device([] {
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 1);
    EXPECT_EQ(cudaSetDevice(current), cudaSuccess);  // as NCCL does at the end of a call
  });
}

TEST_F(CudaContexts, AreOnTheDeviceThatIsUsed) {
  in_new_thread([] {
    auto device = std::make_unique<CudaDevice>(1);
    use(*device);
    in_new_thread([&] { use(*device); });
    in_new_thread([&] { device.reset(); });
  });
  EXPECT_EQ(FakeCuda::devices_with_contexts(), Devices{1});
}

TEST_F(CudaContexts, TheCallersDeviceStaysCurrent) {
  in_new_thread([] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    CudaDevice device(1);
    use(device);
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0);
  });
}

TEST_F(CudaContexts, AreNotCreatedToFindAStreamsDevice) {
  in_new_thread([] {
    CudaDevice device(1);
    const Stream stream(device);
    in_new_thread([&] { EXPECT_EQ(device_of_stream(static_cast<cudaStream_t>(stream.get())), 1); });
    EXPECT_EQ(device_of_stream(static_cast<cudaStream_t>(stream.get())), 1);
  });
  EXPECT_EQ(FakeCuda::devices_with_contexts(), Devices{1});
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(CudaContexts, TooLittleMemoryIsSaidWithTheNumbers) {
  CudaDevice device(1);
  const Stream stream(device);
  const std::string message = error_of([&] { (void)device.allocate(std::size_t{1} << 41, stream.get()); });
  EXPECT_EQ(message.find("GPU 1 has 3 of 80 MiB free, and 2097152 are needed at once (cudaMallocFromPoolAsync): let"), 0U)
      << message;
}

TEST_F(CudaContexts, AGpuOrDriverThatDoesNotFitTheBuildIsSaid) {
  const auto said = [](cudaError_t code) { return error_of([=] { fail_cuda(code, "cudaX()", "a/b.cpp", 3); }); };
  EXPECT_EQ(said(cudaErrorNoKernelImageForDevice).find("cudaX() failed at b.cpp:3: an error (cudaError): this build has no"),
            0U);
  EXPECT_NE(said(cudaErrorInsufficientDriver).find(": the driver is older than CUDA 1"), std::string::npos);
  EXPECT_EQ(said(cudaErrorInvalidValue), "cudaX() failed at b.cpp:3: an error (cudaError)");
}

TEST_F(CudaContexts, AGraphKeepsWhatItIsGiven) {
  CudaDevice device(1);
  const Stream stream(device);
  auto object = std::make_shared<int>();
  const std::weak_ptr<int> seen = object;
  EXPECT_THROW(device.keep_in_graph(stream.get(), object), Error);  // it is not being captured
  FakeCuda::begin_capture();
  device.keep_in_graph(stream.get(), std::move(object));
  EXPECT_FALSE(seen.expired());
  FakeCuda::destroy_graph();
  EXPECT_TRUE(seen.expired());
}

TEST_F(CudaContexts, ADefaultStreamIsOfTheCallersDevice) {
  for (const cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
    in_new_thread([&] {
      CudaDevice device(1);
      EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
      EXPECT_EQ(device_of_stream(stream), 1);
      EXPECT_EQ(device.device_of(stream), 1);
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
      EXPECT_EQ(device_of_stream(stream), 0);
      EXPECT_EQ(device.device_of(stream), 0);
    });
  }
}

}  // namespace
}  // namespace tnt
