// The plan: every tensor in one bucket of its type, in gradient order; a bucket is closed at the fusion threshold.
#include "reducer/plan.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "support/array.hpp"

namespace tnt {
namespace {

std::vector<TensorSpec> floats(const std::vector<std::size_t>& counts) {
  std::vector<TensorSpec> result;
  for (const std::size_t count : counts) result.push_back({fmt::format("t{}", result.size()), count, TNT_FLOAT32});
  return result;
}

std::vector<std::vector<std::size_t>> buckets_of(const Plan& plan) {
  std::vector<std::vector<std::size_t>> result;
  for (const Bucket& bucket : plan.buckets()) result.push_back(bucket.tensors);
  return result;
}

using Buckets = std::vector<std::vector<std::size_t>>;
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max() / 2;

TEST(Plan, FillsFromTheLastTensorAndMakesTheFirstBucketAndTheLastSmall) {
  // 400 bytes each. The first bucket is closed at 1000 / 4, the others at 1000; the last keeps only 1000 / 4, the rest forms a
  // bucket before it.
  EXPECT_EQ(buckets_of(Plan(floats(std::vector<std::size_t>(9, 100)), 1000)), (Buckets{{8}, {7, 6, 5}, {4, 3, 2}, {1}, {0}}));
  EXPECT_EQ(buckets_of(Plan(floats({1, 1, 100, 100, 100}), 400)), (Buckets{{4}, {3}, {2}, {1, 0}}))
      << "8 bytes are small enough";
  EXPECT_EQ(buckets_of(Plan(floats({10, 20, 30, 100}), 210)), (Buckets{{3}, {2}, {1, 0}})) << "tensors stay whole";
  EXPECT_EQ(buckets_of(Plan(floats({100, 20, 300}), 500)), (Buckets{{2}, {1}, {0}}));
}

TEST(Plan, MakesNoBucketSmallWhereThereAreFew) {
  EXPECT_EQ(buckets_of(Plan(floats(std::vector<std::size_t>(6, 100)), 1000)), (Buckets{{5, 4, 3}, {2, 1, 0}}));
}

TEST(Plan, ThresholdZeroIsATensorEach) { EXPECT_EQ(buckets_of(Plan(floats({5, 0, 7}), 0)), (Buckets{{2}, {1}, {0}})); }

TEST(Plan, WithoutALimitThereIsABucketForEachType) {
  auto tensors = floats({5, 6, 7});
  tensors[1].dtype = TNT_FLOAT64;
  const Plan plan(tensors, unlimited);
  EXPECT_EQ(buckets_of(plan), (Buckets{{2, 0}, {1}}));
  EXPECT_EQ(plan.buckets()[0].count, 12U);
  EXPECT_EQ(plan.buckets()[0].bytes(), 48U);
  EXPECT_EQ(plan.buckets()[1].bytes(), 48U);
}

TEST(Plan, PutsTensorsThatTravelInOneTypeIntoOneBucket) {
  auto tensors = floats({5, 6, 7, 8, 9});
  tensors[1].dtype = TNT_FLOAT64;
  tensors[2].dtype = TNT_INT32;
  tensors[3].dtype = TNT_BFLOAT16;
  const Plan plan(tensors, unlimited, TNT_BFLOAT16);
  EXPECT_EQ(buckets_of(plan), (Buckets{{4, 3, 1, 0}, {2}}));
  EXPECT_EQ(plan.buckets()[0].dtype, TNT_BFLOAT16);
  EXPECT_EQ(plan.buckets()[0].bytes(), 56U);
  EXPECT_EQ(plan.buckets()[1].dtype, TNT_INT32);
  EXPECT_EQ(plan.describe(0), "bucket 0: 56 B of bfloat16, 4 tensors, t4 …");
  EXPECT_EQ(plan.describe(1), "bucket 1: 28 B, 1 tensor, t2");
  EXPECT_EQ(buckets_of(Plan(tensors, unlimited, TNT_FLOAT16)), (Buckets{{4, 1, 0}, {3}, {2}}));
}

// 200 bytes each in the wire type: too few for small buckets.
TEST(Plan, CountsTheBytesThatTravel) {
  EXPECT_EQ(buckets_of(Plan(floats({100, 100, 100, 100}), 500, TNT_FLOAT16)), (Buckets{{3, 2, 1}, {0}}));
}

TEST(Plan, FillsInTheOrderOfArrival) {
  const auto plan_of = [](std::vector<std::size_t> gradient_order) {
    return buckets_of(Plan(floats({100, 100, 100, 100, 100, 100}), 700, std::nullopt, std::move(gradient_order)));
  };
  EXPECT_EQ(plan_of({2, 0, 5, 4, 3, 1}), (Buckets{{2}, {0, 5}, {4, 3}, {1}}));
  EXPECT_EQ(plan_of({5, 4, 3, 2, 1, 0}), plan_of({}));
}

TEST(Plan, PutsTheTensorsOfAnOwnerTogether) {
  std::vector<TensorSpec> tensors = floats({5, 6, 7, 8, 9});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].owner = i % 2 == 0 ? 1 : 0;
  EXPECT_EQ(buckets_of(Plan(tensors, 60)), (Buckets{{3, 4}, {1, 2, 0}}));
}

TEST(Plan, RefusesAnOrderOfArrivalThatDoesNotNameEachTensorOnce) {
  for (const std::vector<std::size_t>& wrong : {std::vector<std::size_t>{0}, {0, 0}, {0, 2}, {0, 1, 1}}) {
    try {
      (void)Plan(floats({1, 2}), 1000, std::nullopt, wrong);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_INVALID_ARGUMENT);
      EXPECT_STREQ(error.what(), "gradient_order does not name each of the 2 tensors once");
    }
  }
}

TEST(Plan, MayBeEmpty) { EXPECT_EQ(buckets_of(Plan({}, 1000)), Buckets{}); }

TEST(Plan, DescribesBuckets) {
  const Plan plan(floats({10, 300'000, 20, 2}), 1024 * 1024);
  EXPECT_EQ(plan.describe(0), "bucket 0: 1.1 MiB, 3 tensors, t3 …");
  EXPECT_EQ(plan.describe(1), "bucket 1: 40 B, 1 tensor, t0");
  EXPECT_EQ(Plan(floats({300}), 0).describe(0), "bucket 0: 1.2 KiB, 1 tensor, t0");
}

TEST(Plan, HoldsEveryTensorOnceWhateverTheyAre) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<TensorSpec> tensors(random() % 40);
    for (TensorSpec& tensor : tensors) {
      tensor.count = random() % 5 == 0 ? 0 : random() % 5000;
      tensor.dtype = testing::all_dtypes[random() % 3];
    }
    const std::size_t threshold = random() % 20'000;
    const Plan plan(tensors, threshold);
    std::vector<int> seen(tensors.size());
    for (const Bucket& bucket : plan.buckets()) {
      std::size_t count = 0;
      for (std::size_t position = 0; position < bucket.tensors.size(); ++position) {
        const std::size_t tensor = bucket.tensors[position];
        ++seen[tensor];
        count += tensors[tensor].count;
        EXPECT_EQ(tensors[tensor].dtype, bucket.dtype);
        if (position > 0) {
          EXPECT_LT(tensor, bucket.tensors[position - 1]);
        }
      }
      EXPECT_EQ(bucket.count, count);
      const std::size_t last = tensors[bucket.tensors.back()].count * dtype_size(bucket.dtype);
      EXPECT_LT(bucket.bytes() - last, std::max<std::size_t>(threshold, 1)) << "should have closed before its last tensor";
    }
    EXPECT_EQ(seen, std::vector<int>(tensors.size(), 1)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tnt
