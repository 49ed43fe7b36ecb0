#include "reducer/fusion_threshold.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/median.hpp"
#include "device/handles.hpp"

namespace tnt {
namespace {

constexpr std::size_t small_bytes = 64;
constexpr std::size_t large_bytes = std::size_t{1024} * 1024;
constexpr std::size_t large_device_bytes = 16 * large_bytes;
constexpr int small_calls = 9;
constexpr int large_calls = 3;
// The cost of a bucket beside its collective: two framework operations and waking a thread.
constexpr double bucket_seconds = 40e-6;

// The median duration of `calls` calls after one warm-up call.
Call all_reduce_max(tnt_dtype_t dtype, std::size_t count) {
  return {.kind = Call::all_reduce, .dtype = dtype, .op = TNT_MAX, .count = count};
}

template <typename Operation>
double median_seconds(int calls, const Operation& operation) {
  std::vector<double> seconds;
  for (int i = 0; i <= calls; ++i) {
    const std::int64_t begin = now_ns();
    operation();
    if (i > 0) seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
  }
  return median(std::move(seconds));
}

double seconds_of(Communicator& comm, std::size_t bytes, int calls, const CallContext& call) {
  std::vector<float> data(bytes / sizeof(float), 1.0F);
  const Collective largest{all_reduce_max(TNT_FLOAT32, data.size()), data.data(), data.data()};
  return median_seconds(calls, [&] { comm.run(largest, call); });
}

double seconds_of(Device& device, DeviceCommunicator& comm, std::size_t bytes, int calls, const CallContext& call) {
  const DeviceBuffer data(device, bytes, comm.stream());
  device.fill_zero(data.get(), bytes, comm.stream());
  const Event finished(device);
  return median_seconds(calls, [&] {
    comm.run({all_reduce_max(TNT_FLOAT32, bytes / sizeof(float)), data.get(), data.get()}, call.detail);
    finished.record(comm.stream());
    while (!finished.completed()) comm.throw_if_aborted();
  });
}

TransportSpeed agreed_speed(double small, double large, std::size_t bytes, Communicator& comm, const CallContext& call) {
  std::array<double, 2> agreed{small, std::max(large - small, 0.0) / static_cast<double>(bytes)};
  comm.run({all_reduce_max(TNT_FLOAT64, agreed.size()), agreed.data(), agreed.data()}, call);  // of the slowest rank
  return {.latency = agreed[0], .seconds_per_byte = agreed[1]};
}

}  // namespace

TransportSpeed measure_speed(Communicator& comm, const CallContext& call) {
  const double small = seconds_of(comm, small_bytes, small_calls, call);
  const double large = seconds_of(comm, large_bytes, large_calls, call);
  return agreed_speed(small, large, large_bytes, comm, call);
}

TransportSpeed measure_speed(Device& device, DeviceCommunicator& comm, Communicator& host, const CallContext& call) {
  const double small = seconds_of(device, comm, small_bytes, small_calls, call);
  const double large = seconds_of(device, comm, large_device_bytes, large_calls, call);
  return agreed_speed(small, large, large_device_bytes, host, call);
}

std::size_t choose_fusion_threshold(std::size_t bytes, const TransportSpeed& speed) noexcept {
  const double best =
      std::sqrt(static_cast<double>(bytes) * (bucket_seconds + speed.latency) / std::max(speed.seconds_per_byte, 1e-12));
  const double bounded = std::clamp(best, static_cast<double>(min_fusion_threshold), static_cast<double>(max_fusion_threshold));
  return std::size_t{1} << static_cast<unsigned>(std::lround(std::log2(bounded)));
}

}  // namespace tnt
