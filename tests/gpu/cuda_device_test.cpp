// The CUDA device, through its plug-in: what src/device/device.hpp promises about streams, events, the pool and captures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/devices.hpp"
#include "device/handles.hpp"
#include "gpu/graph.hpp"
#include "kernels/cuda/bucket_layout.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt {
namespace {

cudaStream_t cuda(const Stream& stream) { return static_cast<cudaStream_t>(stream.get()); }

class RealDevice : public ::testing::Test {
 protected:
  // Later work on the stream waits until open() is called. A test that ends earlier opens it.
  class Gate {
   public:
    Gate(Device& device, const Stream& stream) : device_(device), stream_(stream.get()) {
      device.launch_host_func([](void* data) { static_cast<std::atomic<bool>*>(data)->wait(false); }, &open_, stream.get());
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() {
      open();
      device_.synchronize(stream_);  // the waiting function reads this object
    }
    void open() {
      open_ = true;
      open_.notify_all();
    }

   private:
    Device& device_;
    StreamHandle stream_;
    std::atomic<bool> open_{false};
  };

  [[nodiscard]] std::vector<float> read(const void* memory, std::size_t count, const Stream& stream) const {
    const PinnedBuffer pinned(*device, count * sizeof(float));
    device->copy(pinned.get(), memory, count * sizeof(float), stream.get());
    device->synchronize(stream.get());
    const auto* values = static_cast<const float*>(pinned.get());
    return {values, values + count};
  }
  void write(void* memory, const std::vector<float>& values, const Stream& stream) const {
    const PinnedBuffer pinned(*device, values.size() * sizeof(float));
    std::copy(values.begin(), values.end(), static_cast<float*>(pinned.get()));
    device->copy(memory, pinned.get(), values.size() * sizeof(float), stream.get());
    device->synchronize(stream.get());
  }

  // value *= factor, as a sum
  void multiply(void* value, int factor, const Stream& stream) const {
    const std::vector<const void*> sources(static_cast<std::size_t>(factor), value);
    device->reduce(value, sources.data(), factor, 1, TNT_FLOAT32, stream.get());
  }

  // Not the constructor: a test that is skipped is constructed, too.
  void SetUp() override {
    device = open_device(0);
    one.emplace(*device);
    two.emplace(*device, Priority::high);
  }

  std::shared_ptr<Device> device;
  std::optional<Stream> one;
  std::optional<Stream> two;
};

TEST_F(RealDevice, SaysWhatItIs) {
  const std::string place = device->bus_id();
  EXPECT_EQ(std::count(place.begin(), place.end(), ':'), 2) << place;
  EXPECT_EQ(device, open_device(0));
}

TEST_F(RealDevice, AnEventHoldsAnotherStreamBack) {
  const Event event(*device);
  EXPECT_TRUE(event.completed());  // never recorded
  const DeviceBuffer memory(*device, sizeof(float), one->get());
  write(memory.get(), {1.0F}, *one);
  multiply(memory.get(), 1, *one);  // the first launch of a kernel may load it, which would wait for the gate
  Gate gate(*device, *one);
  multiply(memory.get(), 2, *one);
  event.record(one->get());
  event.wait_on(two->get());
  multiply(memory.get(), 3, *two);
  EXPECT_FALSE(event.completed());
  EXPECT_FALSE(device->idle(one->get()));
  EXPECT_FALSE(device->idle(two->get()));
  gate.open();
  EXPECT_EQ(read(memory.get(), 1, *two), std::vector<float>{6.0F});
  EXPECT_TRUE(event.completed());
  EXPECT_TRUE(device->idle(one->get()));
}

TEST_F(RealDevice, StreamsRunBesideEachOther) {
  const DeviceBuffer memory(*device, sizeof(float), two->get());
  const PinnedBuffer pinned(*device, sizeof(float));  // is released after the gate: cudaFreeHost waits for all streams
  Gate gate(*device, *one);
  device->copy(memory.get(), pinned.get(), sizeof(float), two->get());
  device->synchronize(two->get());  // returns although the other stream is blocked
  EXPECT_FALSE(device->idle(one->get()));
  gate.open();
  device->synchronize(one->get());
}

TEST_F(RealDevice, ThePoolGivesTheSameMemoryAgain) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const auto free_memory = [] {
    std::size_t free = 0;
    std::size_t all = 0;
    TNT_CUDA(cudaMemGetInfo(&free, &all));
    return free;
  };
  { const DeviceBuffer first(*device, bytes, one->get()); }
  device->synchronize(one->get());
  const std::size_t before = free_memory();
  for (int i = 0; i < 200; ++i) {
    const DeviceBuffer again(*device, bytes, one->get());
    device->fill_zero(again.get(), bytes, one->get());
  }
  device->synchronize(one->get());
  EXPECT_LT(before, free_memory() + 4 * bytes);
}

// One launch for each bucket and direction, and a graph contains all of it.
TEST_F(RealDevice, PackAndUnpackAreOneKernelEachInAGraph) {
  const std::vector<gpu::TensorShape> shapes{{1000, TNT_FLOAT32}, {3, TNT_FLOAT32}, {70'001, TNT_FLOAT32}};
  const gpu::BucketLayout layout = gpu::make_layout(shapes, TNT_BFLOAT16);
  const std::size_t n_tiles = layout.tiles.size();
  std::vector<DeviceBuffer> tensors;
  std::vector<gpu::TensorArgument> arguments;
  for (const gpu::TensorShape& shape : shapes) {
    tensors.emplace_back(*device, shape.count * sizeof(float), one->get());
    arguments.push_back({.in = tensors.back().get(), .out = tensors.back().get(), .scale = 2.0});
  }
  const std::size_t tile_bytes = n_tiles * sizeof(gpu::Tile);
  const DeviceBuffer tiles(*device, tile_bytes, one->get());
  const DeviceBuffer bucket(*device, layout.count * 2, one->get());
  device->copy(tiles.get(), layout.tiles.data(), tile_bytes, one->get());
  device->synchronize(one->get());
  const gpu::BucketLaunch launch = layout.launch(static_cast<const gpu::Tile*>(tiles.get()), arguments.data(), bucket.get());
  const testing::Graph pack(cuda(*one), [&] {
    EXPECT_TRUE(device->capturing(one->get()));
    device->pack(launch, one->get());
  });
  const testing::Graph unpack(cuda(*one), [&] { device->unpack(launch, one->get()); });
  EXPECT_FALSE(device->capturing(one->get()));
  EXPECT_EQ(pack.kernels(), 1U);
  EXPECT_EQ(unpack.kernels(), 1U);
  for (const float start : {1.0F, -3.0F}) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      write(tensors[i].get(), std::vector<float>(shapes[i].count, start + static_cast<float>(i)), *one);
    }
    for (int times = 0; times < 3; ++times) {  // of whole numbers: exact in 16 bits
      pack.replay(cuda(*one));
      unpack.replay(cuda(*one));
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(read(tensors[i].get(), shapes[i].count, *one),
                std::vector<float>(shapes[i].count, 8 * (start + static_cast<float>(i))));
    }
  }
}

// In CUDA's global capture mode, an event query by another thread would end the capture; ours does not.
TEST_F(RealDevice, OtherThreadsMayPollDuringACapture) {
  const Event event(*device);
  event.record(two->get());
  const DeviceBuffer memory(*device, sizeof(float), one->get());
  write(memory.get(), {1.0F}, *one);
  std::optional<PinnedBuffer> pinned;
  const testing::Graph graph(
      cuda(*one),
      [&] {
        multiply(memory.get(), 2, *one);
        std::thread([&] {
          while (!event.completed() || !device->idle(two->get())) std::this_thread::yield();
          pinned.emplace(*device, 64);
        }).join();
      },
      cudaStreamCaptureModeGlobal);
  for (int i = 0; i < 3; ++i) graph.replay(cuda(*one));
  EXPECT_EQ(read(memory.get(), 1, *one), std::vector<float>{8.0F});
}

TEST_F(RealDevice, AnErrorNamesTheCallAndHurtsNobodyElse) {
  try {
    (void)device->allocate(std::size_t{1} << 60, one->get());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("MiB free, and 1099511627776 are needed at once (cudaMallocFromPoolAsync)"),
              std::string::npos)
        << error.what();
  }
  const DeviceBuffer memory(*device, sizeof(float), one->get());
  write(memory.get(), {2.0F}, *one);
  multiply(memory.get(), 2, *one);
  EXPECT_EQ(read(memory.get(), 1, *one), std::vector<float>{4.0F});
}

}  // namespace
}  // namespace tnt
