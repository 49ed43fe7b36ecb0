// Callers that were compiled with an older header: their structs end before fields that were added later.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "support/alone.hpp"
#include "tarantella/tarantella.h"

namespace {

// The structs of the first header.
struct FirstInitOptions {
  std::size_t size = sizeof(FirstInitOptions);
  int rank = 0;
  int ranks = 1;
  const char* rendezvous = nullptr;
  const char* token = nullptr;
};
struct FirstReducerOptions {
  std::size_t size = sizeof(FirstReducerOptions);
  const char* name = "of an old caller";
  const char* context = nullptr;
  std::size_t fusion_threshold = 0;
};
struct FirstBucket {
  std::size_t size = sizeof(FirstBucket);
  std::size_t count = 0;
  std::size_t bytes = 0;
  tnt_dtype_t dtype = TNT_INT8;
  const std::size_t* tensors = nullptr;
  std::size_t n_tensors = 0;
};
struct FirstStats {
  std::size_t size = sizeof(FirstStats);
  std::uint64_t steps = 7;
  std::uint64_t bytes = 7;
  double busy = -1;
  double exposed = -1;
};

static_assert(offsetof(FirstInitOptions, token) == offsetof(tnt_init_options_t, token));
static_assert(offsetof(FirstReducerOptions, fusion_threshold) == offsetof(tnt_reducer_options_t, fusion_threshold));
static_assert(offsetof(FirstBucket, n_tensors) == offsetof(tnt_bucket_t, n_tensors));
static_assert(offsetof(FirstStats, exposed) == offsetof(tnt_reducer_stats_t, exposed));

// A struct that ends where memory does: the library must not touch a byte behind it.
template <typename First>
class AtTheEnd {
 public:
  AtTheEnd() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<std::byte*>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED || mprotect(memory_ + page_, page_, PROT_NONE) != 0) throw std::runtime_error("no memory");
    object_ = new (memory_ + page_ - sizeof(First)) First;
  }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  ~AtTheEnd() { munmap(memory_, 2 * page_); }
  [[nodiscard]] First* operator->() const { return object_; }
  template <typename Now>
  [[nodiscard]] Now* as() const {
    return reinterpret_cast<Now*>(object_);
  }

 private:
  std::size_t page_;
  std::byte* memory_;
  First* object_;
};

TEST(StructSize, AnOldCallerInitialises) {
  const AtTheEnd<FirstInitOptions> options;
  ASSERT_EQ(tnt_init(options.as<tnt_init_options_t>()), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(tnt_finalize(), TNT_SUCCESS);
  options->size = offsetof(FirstInitOptions, token);
  EXPECT_EQ(tnt_init(options.as<tnt_init_options_t>()), TNT_INVALID_ARGUMENT);
  EXPECT_STREQ(tnt_last_error(), "options->size is 24: start from TNT_INIT_OPTIONS_INITIALIZER");
}

class StructSizeTest : public tnt::testing::Alone {};

TEST_F(StructSizeTest, AnOldCallerReduces) {
  tnt_comm_t world = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  const tnt_tensor_t tensors[] = {{"a", 4, TNT_FLOAT32}, {"b", 2, TNT_FLOAT32}};
  const AtTheEnd<FirstReducerOptions> options;
  tnt_reducer_t reducer = nullptr;
  ASSERT_EQ(tnt_reducer_create(world, tensors, 2, options.as<tnt_reducer_options_t>(), &reducer), TNT_SUCCESS)
      << tnt_last_error();

  const AtTheEnd<FirstBucket> bucket;
  ASSERT_EQ(tnt_reducer_bucket(reducer, 1, bucket.as<tnt_bucket_t>()), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(bucket->size, sizeof(FirstBucket));
  EXPECT_EQ(bucket->count, 4U);
  EXPECT_EQ(bucket->bytes, 16U);
  EXPECT_EQ(bucket->dtype, TNT_FLOAT32);
  ASSERT_EQ(bucket->n_tensors, 1U);
  EXPECT_EQ(bucket->tensors[0], 0U);

  float values[4] = {1, 2, 3, 4};
  for (const std::size_t tensor : {1U, 0U}) {
    ASSERT_EQ(tnt_reducer_ready(reducer, tensor, values, values, 1.0, nullptr), TNT_SUCCESS) << tnt_last_error();
  }
  ASSERT_EQ(tnt_reducer_finish(reducer, nullptr), TNT_SUCCESS) << tnt_last_error();

  const AtTheEnd<FirstStats> stats;
  ASSERT_EQ(tnt_reducer_stats(reducer, stats.as<tnt_reducer_stats_t>()), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(stats->size, sizeof(FirstStats));
  EXPECT_EQ(stats->steps, 1U);
  EXPECT_EQ(stats->bytes, 24U);
  EXPECT_GE(stats->busy, 0);
  EXPECT_GE(stats->exposed, 0);
  EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
}

// The fields that a newer header adds lie behind those that this library knows.
TEST_F(StructSizeTest, ANewCallerReduces) {
  struct {
    tnt_reducer_stats_t known = TNT_REDUCER_STATS_INITIALIZER;
    double added = -1;
  } stats;
  stats.known.size = sizeof(stats);
  tnt_comm_t world = nullptr;
  ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
  const tnt_tensor_t tensor{"a", 4, TNT_FLOAT32};
  tnt_reducer_t reducer = nullptr;
  ASSERT_EQ(tnt_reducer_create(world, &tensor, 1, nullptr, &reducer), TNT_SUCCESS) << tnt_last_error();
  ASSERT_EQ(tnt_reducer_stats(reducer, &stats.known), TNT_SUCCESS) << tnt_last_error();
  EXPECT_EQ(stats.known.size, sizeof(stats));
  EXPECT_EQ(stats.known.unpack, 0);
  EXPECT_EQ(stats.added, -1);
  EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
}

}  // namespace
