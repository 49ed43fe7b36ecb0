// Handles of started operations in a job of one rank: waiting, testing, releasing; and the reducer's plan in the C API.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/alone.hpp"

namespace {

using tnt::testing::expect_error;

class WorkTest : public tnt::testing::Alone {};

TEST_F(WorkTest, IsFinishedAfterAWait) {
  std::vector<float> in(1000, 3.0F);
  std::vector<float> out(1000);
  tnt_work_t work = nullptr;
  ASSERT_EQ(tnt_all_reduce(world, in.data(), out.data(), 1000, TNT_FLOAT32, TNT_SUM, nullptr, &work), TNT_SUCCESS);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(tnt_work_wait(work, -1), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_wait(work, 0), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_wait(work, INFINITY), TNT_SUCCESS);
  expect_error(tnt_work_wait(work, NAN), TNT_INVALID_ARGUMENT, "not a number");
  int finished = 0;
  EXPECT_EQ(tnt_work_test(work, &finished), TNT_SUCCESS);
  EXPECT_EQ(finished, 1);
  expect_error(tnt_work_test(work, nullptr), TNT_INVALID_ARGUMENT, "finished is NULL");
  EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
  EXPECT_EQ(out, in);
}

TEST_F(WorkTest, OperationsRunInTheOrderOfTheirCalls) {
  std::vector<int> numbers(100);
  numbers[0] = 7;
  std::vector<tnt_work_t> works;
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {  // each passes the first number on
    works.push_back(nullptr);
    ASSERT_EQ(tnt_broadcast(world, &numbers[i], &numbers[i + 1], 1, TNT_INT32, 0, nullptr, &works.back()), TNT_SUCCESS);
  }
  EXPECT_EQ(tnt_work_wait(works.back(), -1), TNT_SUCCESS);
  EXPECT_EQ(numbers, std::vector<int>(100, 7));
  for (tnt_work_t work : works) EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
}

TEST_F(WorkTest, ReturnsTheOperationsError) {
  ASSERT_EQ(tnt_comm_abort(world, nullptr), TNT_SUCCESS);
  tnt_work_t work = nullptr;
  ASSERT_EQ(tnt_barrier(world, nullptr, &work), TNT_SUCCESS);
  EXPECT_EQ(tnt_work_wait(work, -1), TNT_ABORTED);
  EXPECT_STREQ(tnt_last_error(), "rank 0: aborted");
  int finished = 0;
  EXPECT_EQ(tnt_work_test(work, &finished), TNT_ABORTED);
  EXPECT_EQ(finished, 1);
  const tnt_work_t works[] = {nullptr, work};
  std::size_t index = 0;
  expect_error(tnt_work_wait_any(works, 2, -1, &index), TNT_ABORTED, "rank 0: aborted");
  EXPECT_EQ(index, 1U);
  EXPECT_EQ(tnt_work_destroy(work), TNT_SUCCESS);
}

class ReducerPlanTest : public tnt::testing::Alone {};

TEST_F(ReducerPlanTest, ShowsItsBuckets) {
  const tnt_tensor_t tensors[] = {{"a", 10, TNT_FLOAT32}, {"b", 20, TNT_FLOAT32}, {"c", 30, TNT_FLOAT32}};
  struct Case {
    std::size_t threshold;
    const char* environment;
    std::vector<std::vector<std::size_t>> buckets;
  };
  for (const Case& of : {Case{0, "", {{2}, {1}, {0}}}, Case{200, "", {{2, 1}, {0}}}, Case{TNT_FUSION_DEFAULT, "", {{2, 1, 0}}},
                         Case{TNT_FUSION_DEFAULT, "0", {{2}, {1}, {0}}}}) {
    setenv("TNT_FUSION_THRESHOLD", of.environment, 1);
    if (of.environment[0] == '\0') unsetenv("TNT_FUSION_THRESHOLD");
    ASSERT_EQ(tnt_finalize(), TNT_SUCCESS);
    ASSERT_EQ(tnt_init(nullptr), TNT_SUCCESS);
    ASSERT_EQ(tnt_comm_world(&world), TNT_SUCCESS);
    tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
    options.fusion_threshold = of.threshold;
    tnt_reducer_t reducer = nullptr;
    ASSERT_EQ(tnt_reducer_create(world, tensors, 3, &options, &reducer), TNT_SUCCESS) << tnt_last_error();
    std::size_t n = 0;
    ASSERT_EQ(tnt_reducer_bucket_count(reducer, &n), TNT_SUCCESS);
    ASSERT_EQ(n, of.buckets.size());
    for (std::size_t i = 0; i < n; ++i) {
      tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
      ASSERT_EQ(tnt_reducer_bucket(reducer, i, &bucket), TNT_SUCCESS);
      EXPECT_EQ(std::vector<std::size_t>(bucket.tensors, bucket.tensors + bucket.n_tensors), of.buckets[i]);
      EXPECT_EQ(bucket.dtype, TNT_FLOAT32);
      EXPECT_EQ(bucket.bytes, bucket.count * 4);
    }
    EXPECT_EQ(tnt_reducer_destroy(reducer), TNT_SUCCESS);
  }
}

}  // namespace
