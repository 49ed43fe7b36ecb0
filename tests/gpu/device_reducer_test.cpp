// The reducer of gradients on a GPU over the real NCCL, with one rank: sums equal the inputs in steps, in captured steps, with
// a wire type, and for gradients in the bucket.
#include "reducer/device_reducer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "comm/local.hpp"
#include "comm/nccl/communicator.hpp"
#include "device/devices.hpp"
#include "gpu/graph.hpp"

namespace tnt {
namespace {

constexpr std::size_t count = 3001;

// Five tensors in three buckets: 4 and 3; 2 and 1; 0.
Plan five_tensors(std::optional<tnt_dtype_t> wire) {
  std::vector<TensorSpec> specs;
  for (const char* name : {"a", "b", "c", "d", "e"}) specs.push_back({name, count, TNT_FLOAT32});
  return {specs, 2 * count * dtype_size(wire.value_or(TNT_FLOAT32)), wire};
}

class OneRank : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("TNT_NCCL_LIBRARY");
    try {
      library = nccl_library(named == nullptr ? "" : named, Vendor::nvidia);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    device = open_device(0);
    stream.emplace(*device);
    for (int i = 0; i < 5; ++i) gradients.emplace_back(*device, count * sizeof(float), stream->get());
  }
  void make(const DeviceReducerOptions& options = {}, std::optional<tnt_dtype_t> wire = std::nullopt) {
    reducer.emplace(device, make_nccl_communicator(*device, host, {.timeout = 60.0}, library), five_tensors(wire), options);
  }
  // Small whole numbers: exact in 16 bits.
  static float value(std::size_t tensor, int step) { return static_cast<float>(tensor + 1) - static_cast<float>(step); }

  void compute(void* gradient, std::size_t tensor, int step) {
    const PinnedBuffer pinned(*device, count * sizeof(float));
    std::fill_n(static_cast<float*>(pinned.get()), count, value(tensor, step));
    device->copy(gradient, pinned.get(), count * sizeof(float), stream->get());
    device->synchronize(stream->get());
  }
  void hand_over(double scale) {
    for (std::size_t tensor = 5; tensor-- > 0;) {
      void* const gradient = gradients[tensor].get();
      reducer->ready(tensor, {.in = gradient, .out = gradient, .scale = scale}, stream->get());
    }
    reducer->finish(stream->get());
  }
  void expect(const void* result, float expected, const std::string& what) {
    const PinnedBuffer pinned(*device, count * sizeof(float));
    device->copy(pinned.get(), result, count * sizeof(float), stream->get());
    device->synchronize(stream->get());
    const auto* values = static_cast<const float*>(pinned.get());
    EXPECT_EQ(std::vector<float>(values, values + count), std::vector<float>(count, expected)) << what;
  }
  void expect_step(int step, float factor) {
    for (std::size_t i = 0; i < 5; ++i) {
      expect(gradients[i].get(), factor * value(i, step), fmt::format("tensor {} in step {}", i, step));
    }
  }
  void compute_all(int step) {
    for (std::size_t i = 0; i < 5; ++i) compute(gradients[i].get(), i, step);
  }

  LocalCommunicator host;
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<Device> device;
  std::optional<Stream> stream;
  std::vector<DeviceBuffer> gradients;
  std::optional<DeviceReducer> reducer;  // destroyed before what it uses
};

TEST_F(OneRank, StepsFollowEachOther) {
  for (const std::optional<tnt_dtype_t> wire : {std::optional<tnt_dtype_t>(), std::optional(TNT_BFLOAT16)}) {
    for (const DeviceReducerOptions& options : {DeviceReducerOptions{}, DeviceReducerOptions{.rank_invariant = true}}) {
      make(options, wire);
      for (int step = 0; step < 4; ++step) {
        compute_all(step);
        hand_over(0.5);
        expect_step(step, 0.5F);
      }
      EXPECT_EQ(reducer->stats().steps, 4U);
      reducer.reset();
    }
  }
}

TEST_F(OneRank, AStepCanBeCaptured) {
  make();
  compute_all(0);
  hand_over(2.0);
  expect_step(0, 2.0F);
  const testing::Graph graph(static_cast<cudaStream_t>(stream->get()), [&] { hand_over(2.0); });
  EXPECT_GE(graph.kernels(), 6U);  // three buckets, packed and unpacked; NCCL may add its own
  for (int step = 1; step < 4; ++step) {
    compute_all(step);
    graph.replay(static_cast<cudaStream_t>(stream->get()));
    graph.replay(static_cast<cudaStream_t>(stream->get()));
    expect_step(step, 4.0F);
  }
  compute_all(4);
  hand_over(2.0);
  expect_step(4, 2.0F);
}

TEST_F(OneRank, GradientsMayLieInTheBucket) {
  make({.gradients_in_buckets = true});
  std::vector<void*> places;
  for (std::size_t tensor = 0; tensor < 5; ++tensor) places.push_back(reducer->gradient_buffer(tensor));
  for (int step = 0; step < 2; ++step) {
    for (std::size_t tensor = 5; tensor-- > 0;) {
      compute(places[tensor], tensor, step);
      reducer->ready(tensor, {.in = places[tensor], .out = places[tensor]}, stream->get());
    }
    reducer->finish(stream->get());
    for (std::size_t tensor = 0; tensor < 5; ++tensor) expect(places[tensor], value(tensor, step), "a view");
  }
}

TEST_F(OneRank, StatisticsAreOfTheSums) {
  make({.statistics = true});
  compute_all(0);
  hand_over(1.0);
  const PinnedBuffer pinned(*device, 3 * sizeof(gpu::Statistics));
  device->copy(pinned.get(), reducer->statistics(), 3 * sizeof(gpu::Statistics), stream->get());
  device->synchronize(stream->get());
  const auto* found = static_cast<const gpu::Statistics*>(pinned.get());
  std::vector<double> squares(3);
  for (std::size_t bucket = 0; bucket < 3; ++bucket) {
    for (const std::size_t i : reducer->plan().buckets()[bucket].tensors) squares[bucket] += count * value(i, 0) * value(i, 0);
  }
  for (std::size_t bucket = 0; bucket < 3; ++bucket) {
    EXPECT_EQ(found[bucket].sum_of_squares, squares[bucket]);
    EXPECT_EQ(found[bucket].non_finite, 0U);
  }
}

}  // namespace
}  // namespace tnt
