// The memory that reducing needs besides the gradients.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "reducer/reducer.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;
using testing::run_threads;

// A line of /proc/self/status, in bytes: VmRSS is the process's resident memory, VmHWM its maximum since the mark.
std::size_t memory(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    std::size_t kib = 0;
    if (name == line + ":" && status >> kib) return kib * 1024;
  }
  return 0;
}

bool mark_most_memory() {
  std::ofstream marks("/proc/self/clear_refs");
  marks << "5" << std::flush;
  return marks.good();
}

// Gradients are copied directly into the ranks' shared memory and back, chunk by chunk: a bucket is never stored as a whole.
TEST(ReducerMemory, IsFarLessThanABucket) {
  constexpr std::size_t count = std::size_t{16} * 1024 * 1024;  // 64 MiB per rank, in one bucket
  constexpr std::size_t bound = std::size_t{16} * 1024 * 1024;
  if (testing::sanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted";
  if (!mark_most_memory()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written to";
  run_threads(2, [&](Communicator& world) {
    std::vector<float> gradient(count, 1.0F);
    const Plan plan({{"gradient", count, TNT_FLOAT32}}, 2 * count * sizeof(float));
    Reducer reducer(world.split(0, 0, call()), plan, {}, std::make_shared<ProgressEngine>(), nullptr);
    barrier(world, call());
    const std::size_t before = memory("VmRSS");
    if (world.rank() == 0) (void)mark_most_memory();
    barrier(world, call());
    for (int step = 0; step < 2; ++step) {
      reducer.ready(0, {.in = gradient.data(), .out = gradient.data(), .scale = 0.5});
      reducer.finish();
    }
    barrier(world, call());
    EXPECT_LT(memory("VmHWM"), before + bound);
    EXPECT_EQ(gradient[count / 2], 1.0F);
  });
}

}  // namespace
}  // namespace tnt
