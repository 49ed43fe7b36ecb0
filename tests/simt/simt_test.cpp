// Tests of the CUDA imitation itself: it must detect wrong kernels.
#include "simt/simt.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace simt {
namespace {

constexpr unsigned block = 256;

// The error message for a wrong kernel.
std::string error_of(const std::function<void()>& kernel, unsigned blocks = 1) {
  try {
    run("wrong_kernel", blocks, block, kernel);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Simt, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> times(5 * block);
  run("kernel", 5, block, [&] {
    EXPECT_EQ(gridDim.x, 5U);
    EXPECT_EQ(blockDim.x, block);
    ++times[blockIdx.x * block + threadIdx.x];
  });
  EXPECT_EQ(times, std::vector<int>(5 * block, 1));
}

TEST(Simt, NobodyPassesABarrierBeforeAllHaveCome) {
  for (const Schedule schedule : {Schedule::ascending, Schedule::descending, Schedule::shuffled}) {
    set_schedule(schedule, 7);
    unsigned before = 0;
    unsigned after = 0;
    run("kernel", 3, block, [&] {
      for (unsigned round = 1; round <= 4; ++round) {
        const unsigned self = threadIdx.x;
        ++before;
        __syncthreads();
        EXPECT_EQ(before, (blockIdx.x * 4 + round) * block);
        EXPECT_EQ(threadIdx.x, self);
        ++after;
        __syncthreads();
        EXPECT_EQ(after, (blockIdx.x * 4 + round) * block);
      }
    });
  }
  set_schedule(Schedule::ascending);
}

TEST(Simt, ShufflesWithinAWarp) {
  run("kernel", 1, block, [] {
    const unsigned lane = threadIdx.x % 32;
    for (const unsigned delta : {16U, 8U, 1U}) {
      const double got = __shfl_down_sync(0xffffffff, 0.5 + threadIdx.x, delta);
      EXPECT_EQ(got, 0.5 + threadIdx.x + (lane + delta < 32 ? delta : 0));
      EXPECT_EQ(__shfl_down_sync(0xffffffff, threadIdx.x, delta), threadIdx.x + (lane + delta < 32 ? delta : 0));
    }
  });
}

TEST(Simt, ShufflesWithinAWarpOf64) {
  set_warp_size(64);
  run("kernel", 1, block, [] {
    const unsigned self = threadIdx.x;
    for (const unsigned delta : {32U, 16U, 1U}) {
      EXPECT_EQ(__shfl_down_sync(0xffffffff, self, delta), self + (self % 64 + delta < 64 ? delta : 0));
      EXPECT_EQ(__shfl_down_sync(0xffffffff, self, delta, 32), self + (self % 32 + delta < 32 ? delta : 0));
    }
  });
  const std::string ended = error_of([] {
    if (threadIdx.x != 40) static_cast<void>(__shfl_down_sync(0xffffffff, 1.0, 1));
  });
  set_warp_size(32);
  EXPECT_TRUE(contains(ended, "thread 0 waits") && contains(ended, "thread 40 has ended")) << ended;
}

// Threads that exit before a barrier, or wait at another one, would hang a GPU.
TEST(Simt, ReportsABarrierThatNotAllReach) {
  const std::string ended = error_of([] {
    if (threadIdx.x == 17) return;
    __syncthreads();
  });
  EXPECT_TRUE(contains(ended, "wrong_kernel, block 0: thread 0 waits at simt_test.cpp:")) << ended;
  EXPECT_TRUE(contains(ended, "thread 17 has ended")) << ended;
  const std::string elsewhere = error_of([] {
    if (threadIdx.x < 100) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_TRUE(contains(elsewhere, "thread 100 waits at simt_test.cpp:")) << elsewhere;
}

TEST(Simt, ReportsAShuffleThatNotAllOfTheWarpReach) {
  const std::string ended = error_of([] {
    if (threadIdx.x == 40) return;
    static_cast<void>(__shfl_down_sync(0xffffffff, 1.0, 1));
  });
  EXPECT_TRUE(contains(ended, "thread 40 has ended")) << ended;
  EXPECT_TRUE(contains(error_of([] { static_cast<void>(__shfl_down_sync(0xff, 1.0, 1)); }), "whole warps"));
}

TEST(Simt, ReportsAccessThatIsNotAligned) {
  alignas(16) static std::uint32_t memory[2];
  const std::string error = error_of([] {
    static_cast<void>(checked(reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(memory) + 4 * (threadIdx.x % 2))));
  });
  EXPECT_TRUE(contains(error, "thread 1 of block 0 accesses 8 bytes")) << error;
}

TEST(Simt, RunsOnAfterAnError) {
  EXPECT_NE(error_of([] {
              if (threadIdx.x % 2 == 0) __syncthreads();
            }),
            "no error");
  EXPECT_NE(error_of([] { throw Error("from a thread"); }, 3), "no error");
  int sum = 0;
  run("kernel", 2, block, [&] {
    __syncthreads();
    ++sum;
  });
  EXPECT_EQ(sum, 2 * 256);
}

// A missing barrier is visible: in some order a thread reads what another has not written yet.
TEST(Simt, OrdersOfThreadsShowAMissingBarrier) {
  const auto neighbours = [](bool barrier) {
    std::vector<int> got(block);
    run("kernel", 1, block, [&] {
      __shared__ int values[block];
      values[threadIdx.x] = 0;
      __syncthreads();
      values[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
      if (barrier) __syncthreads();
      got[threadIdx.x] = values[(threadIdx.x + 1) % block];
    });
    return got;
  };
  const std::vector<int> right = neighbours(true);
  EXPECT_EQ(right[0], 2);
  int seen = 0;
  for (const Schedule schedule : {Schedule::ascending, Schedule::descending, Schedule::shuffled}) {
    set_schedule(schedule, 3);
    EXPECT_EQ(neighbours(true), right);
    if (neighbours(false) != right) ++seen;
  }
  set_schedule(Schedule::ascending);
  EXPECT_EQ(seen, 3);
}

TEST(Simt, HostThreadsHaveBlocksOfTheirOwn) {
  std::vector<std::thread> hosts;
  std::vector<unsigned> sums(4);
  for (unsigned host = 0; host < 4; ++host) {
    hosts.emplace_back([&sum = sums[host]] {
      run("kernel", 20, block, [&] {
        __shared__ unsigned shared;
        if (threadIdx.x == 0) shared = 0;
        __syncthreads();
        shared += threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) sum += shared;
      });
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(sums, std::vector<unsigned>(4, 20 * 255 * 128));
}

}  // namespace
}  // namespace simt
