// The fusion threshold: least exposed time by the model's own formula, and the same on all ranks.
#include "reducer/fusion_threshold.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr TransportSpeed shared_memory{.latency = 1e-6, .seconds_per_byte = 1.0 / 8e9};
constexpr TransportSpeed gigabit{.latency = 300e-6, .seconds_per_byte = 1.0 / 105e6};

TEST(Threshold, GrowsWithTheModelAndWithWhatACallCosts) {
  std::size_t before = 0;
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 40; bytes *= 4) {
    const std::size_t chosen = choose_fusion_threshold(bytes, shared_memory);
    EXPECT_GE(chosen, before);
    EXPECT_GE(chosen, min_fusion_threshold);
    EXPECT_LE(chosen, max_fusion_threshold);
    EXPECT_EQ(chosen & (chosen - 1), 0U) << "a power of two";
    before = chosen;
  }
  EXPECT_EQ(before, max_fusion_threshold);
  EXPECT_LT(choose_fusion_threshold(64 * mib, gigabit), choose_fusion_threshold(64 * mib, shared_memory));
  TransportSpeed slow_calls = gigabit;
  slow_calls.latency *= 100;
  EXPECT_GT(choose_fusion_threshold(64 * mib, slow_calls), choose_fusion_threshold(64 * mib, gigabit));
}

// Compared with all other powers of two, by the exposed time defined above choose_fusion_threshold.
TEST(Threshold, IsTheBestPowerOfTwo) {
  constexpr double overhead = 40e-6;
  for (const TransportSpeed& speed : {shared_memory, gigabit}) {
    for (const std::size_t bytes : {1 * mib, 16 * mib, 100 * mib, 1024 * mib}) {
      const auto exposed = [&](std::size_t bucket) {
        return static_cast<double>(bytes) / static_cast<double>(bucket) * (overhead + speed.latency) +
               static_cast<double>(bucket) * speed.seconds_per_byte;
      };
      const std::size_t chosen = choose_fusion_threshold(bytes, speed);
      for (std::size_t other = min_fusion_threshold; other <= max_fusion_threshold; other *= 2) {
        EXPECT_LE(exposed(chosen), exposed(other)) << bytes << " bytes, " << other / kib << " KiB";
      }
    }
  }
}

TEST(Threshold, ATransportThatCostsNothingIsNoDivisionByZero) {
  EXPECT_EQ(choose_fusion_threshold(1024 * mib, {}), max_fusion_threshold);
  EXPECT_EQ(choose_fusion_threshold(0, {}), min_fusion_threshold);
}

TEST(Threshold, SpeedIsTheSameOnAllRanks) {
  std::vector<TransportSpeed> speeds(3);
  testing::run_threads(
      3, [&](Communicator& comm) { speeds[static_cast<std::size_t>(comm.rank())] = measure_speed(comm, testing::call()); });
  for (const TransportSpeed& speed : speeds) {
    EXPECT_EQ(speed.latency, speeds[0].latency);
    EXPECT_EQ(speed.seconds_per_byte, speeds[0].seconds_per_byte);
    EXPECT_GT(speed.latency, 0.0);
    EXPECT_LT(speed.latency, 1.0);
    EXPECT_TRUE(std::isfinite(speed.seconds_per_byte));
  }
}

}  // namespace
}  // namespace tnt
