// The addresses of tensors, as the device sees them: always the latest, in spite of the host being ahead; and permanent for
// graphs.
#include "reducer/tensor_table.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "support/simulated_device.hpp"

namespace tnt {
namespace {

using testing::SimulatedDevice;

// Nothing runs on the device until somebody polls.
class TensorTableTest : public ::testing::Test {
 protected:
  static constexpr std::size_t tensors = 3;

  [[nodiscard]] static gpu::TensorArgument argument(double scale) { return {.in = nullptr, .out = nullptr, .scale = scale}; }
  void set_all(double scale) {
    for (std::size_t i = 0; i < tensors; ++i) table.set(i, argument(scale + static_cast<double>(i)));
  }
  const gpu::TensorArgument* place(bool capturing = false) {
    return table.upload(stream.get(), capturing, [&] { ++waits; });
  }
  // A kernel that reads the table.
  void expect(const gpu::TensorArgument* at, double scale) {
    device.enqueue(
        stream.get(), {{at, tensors * sizeof(*at)}}, {},
        [=] {
          for (std::size_t i = 0; i < tensors; ++i) EXPECT_EQ(at[i].scale, scale + static_cast<double>(i));
        },
        "reads the table");
  }

  SimulatedDevice device;
  Stream stream{device};
  TensorTable table{device, tensors, stream.get()};
  int waits = 0;
};

TEST_F(TensorTableTest, UploadsWhatHasChangedAndNothingElse) {
  set_all(1);
  for (int i = 0; i < 10; ++i) expect(place(), 1);
  EXPECT_EQ(device.calls(testing::Call::copy), 1);
  table.set(1, argument(2));  // as it was before
  expect(place(), 1);
  EXPECT_EQ(device.calls(testing::Call::copy), 1);
  set_all(5);
  expect(place(), 5);
  EXPECT_EQ(device.calls(testing::Call::copy), 2);
  device.synchronize(stream.get());
}

TEST_F(TensorTableTest, TheHostWaitsWhenItIsSeveralStepsAhead) {
  const auto versions = static_cast<int>(TensorTable::versions);
  for (int i = 0; i < versions; ++i) {
    set_all(10 * i);
    expect(place(), 10 * i);
  }
  EXPECT_EQ(waits, 0);
  for (int i = versions; i < 3 * versions; ++i) {
    set_all(10 * i);
    expect(place(), 10 * i);
  }
  EXPECT_GT(waits, 0);
  device.synchronize(stream.get());
}

TEST_F(TensorTableTest, AGraphKeepsItsOwn) {
  set_all(1);
  expect(place(), 1);
  device.synchronize(stream.get());
  std::vector<SimulatedDevice::Graph> graphs;
  for (std::size_t i = 0; i < TensorTable::captures; ++i) {
    for (int again = 0; again < 2; ++again) {  // the same addresses use one entry
      set_all(100 * static_cast<double>(i));
      device.begin_capture(stream.get());
      expect(place(true), 100 * static_cast<double>(i));
      graphs.push_back(device.end_capture(stream.get()));
    }
  }
  set_all(7);
  expect(place(), 7);
  for (const auto& graph : graphs) device.replay(graph, stream.get());
  expect(place(), 7);
  device.synchronize(stream.get());

  device.begin_capture(stream.get());
  try {
    (void)place(true);
    ADD_FAILURE() << "one more set of addresses than there is room for";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("4 different sets"), std::string::npos) << error.what();
  }
  (void)device.end_capture(stream.get());
}

}  // namespace
}  // namespace tnt
