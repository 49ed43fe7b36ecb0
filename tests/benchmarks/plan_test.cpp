// The memory that a run needs, checked before it is allocated; and the plan that --dry-run prints.
#include "benchmarks/plan.hpp"

#include <gtest/gtest.h>

#include "benchmarks/buffers.hpp"
#include "support.hpp"

namespace tnt::bench {
namespace {

using testing::parse_line;
using testing::refusal;

TEST(Plan, APoolIsOneBufferOrTwoCachesFull) {
  constexpr std::size_t cache = 32 << 20;
  EXPECT_LE(pool_bytes(1024, Cache::hot, cache), 2048U);
  for (const std::size_t bytes : {4UL, 1024UL, 1UL << 20, 48UL << 20}) {
    const std::size_t pool = pool_bytes(bytes, Cache::rotate, cache);
    EXPECT_GE(pool, 2 * cache) << bytes;
    EXPECT_LE(pool, 2 * cache + bytes + 256) << bytes;
  }
  EXPECT_LE(pool_bytes(1UL << 30, Cache::rotate, cache), (1UL << 30) + 256);
}

TEST(Plan, ThePoolsAreNoLargerThanPlanned) {
  const Pool pool(1000, 4, Cache::rotate);
  EXPECT_LE(pool.size() * pool.bytes(), pool_bytes(1004, Cache::rotate, last_level_cache_bytes()));
}

TEST(Plan, MemoryGrowsWithSizesAndRanks) {
  const Options small = parse_line("-e 1M --cache hot --limit off");
  const Options large = parse_line("-e 1G --cache hot --limit off");
  EXPECT_GE(memory_needed(small, 2), 4UL << 20);
  EXPECT_LE(memory_needed(small, 2), 5UL << 20);
  EXPECT_GE(memory_needed(large, 8), 16UL << 30);
  EXPECT_EQ(memory_needed(large, 8), 4 * memory_needed(large, 2));
  const Options gather = parse_line("all_gather -b 1G -e 1G --cache hot --limit off");
  EXPECT_LE(memory_needed(gather, 4), 4 * ((1UL << 30) + (1UL << 28) + 1024));
  const Options uneven = parse_line("all_to_all_v -b 1G -e 1G --cache hot --limit off");
  EXPECT_GE(memory_needed(uneven, 4), 4 * ((1UL << 30) + 4 * (4UL << 30) / 10));  // the last rank's share, from 4 ranks
}

TEST(Plan, OfAModelIsItsGradientsAndBuckets) {
  const std::size_t gradients = 25'583'592UL * 4;
  EXPECT_EQ(memory_needed(parse_line("bucket --limit off"), 2), 2 * 2 * gradients);
  EXPECT_EQ(memory_needed(parse_line("bucket --limit off --against mpi"), 2), 2 * 3 * gradients);
}

TEST(Plan, MoreThanTheMachineHasIsRefused) {
  const Options options = parse_line("-e 64G --ranks 4");
  const std::string text = refusal([&] { check_memory(options, 4, 8UL << 30); });
  EXPECT_EQ(text.find("all_reduce with 4 ranks needs 5242"), 0U) << text;
  EXPECT_NE(text.find("this machine has 8192.0 MiB"), std::string::npos) << text;
  EXPECT_NO_THROW(check_memory(options, 4, 1UL << 40));
}

TEST(Plan, RowsAreCounted) {
  EXPECT_EQ(rows_of(parse_line("-b 4 -e 64M -f 4")), 26U);
  EXPECT_EQ(rows_of(parse_line("-b 8 -e 8 -d f32,f64 -O all --backend shm,mpi --place out")), 2U * 5 * 2);
  EXPECT_EQ(rows_of(parse_line("all_gather -b 4K -e 4K")), 1U);
  EXPECT_EQ(rows_of(parse_line("barrier")), 1U);
  EXPECT_EQ(rows_of(parse_line("bucket")), 1U);
}

TEST(Plan, IsPrinted) {
  const testing::Scratch scratch;
  for (const char* line : {"--against mpi -b 4 -e 64K", "barrier", "bucket", "overlap", "all_gather -n 3 -c off"}) {
    std::FILE* file = std::fopen((scratch / "plan").c_str(), "w");
    print_plan(parse_line(line), 2, file);
    std::fclose(file);
    const std::string text = testing::Scratch::read(scratch / "plan");
    for (const char* word : {"collective  ", "ranks       2\n", "rows        ", "memory      ", " MiB a rank\n"}) {
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tnt::bench
