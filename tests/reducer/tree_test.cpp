// The gradients of V shards of a batch on n ranks: the lower levels of one tree on each rank, the upper levels across ranks.
// The bits do not depend on n, on the transport or on the buckets.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/reduce.hpp"
#include "reducer/reducer.hpp"
#include "support/array.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"
#include "support/tree.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::disorderly_values;
using testing::run_threads;

constexpr std::size_t shards = 8;
const std::vector<TensorSpec> tensors{
    {"kernel", 40'001, TNT_FLOAT32}, {"bias", 3, TNT_FLOAT32}, {"wide", 2'000, TNT_FLOAT64}, {"count", 5, TNT_INT64}};

Array gradient(std::size_t shard, std::size_t tensor) {
  return disorderly_values(tensors[tensor].dtype, tensors[tensor].count, static_cast<unsigned>(10 * tensor + shard + 1));
}

// The shard's share of the batch's samples; shard 5 has none.
double weight(std::size_t shard, std::size_t tensor) {
  if (shard == 5) return 0.0;
  return tensors[tensor].dtype == TNT_INT64 ? 1.0 : static_cast<double>(shard + 1) / 31.0;
}

Array reference(std::size_t tensor) {
  std::vector<Array> weighted;
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const Array own = gradient(shard, tensor);
    Array& product = weighted.emplace_back(own.dtype(), own.count());
    const double factor = weight(shard, tensor);
    for (std::size_t i = 0; i < own.count(); ++i) {
      // a product of two floats is exact in double, and rounded to float once
      const double rounded = own.dtype() == TNT_FLOAT32 ? static_cast<double>(static_cast<float>(factor)) : factor;
      product.set(i, rounded * own.get(i));
    }
  }
  return testing::tree_sum_of_arrays(weighted);
}

// This rank's shards, added at once, or in pairs first. With one shard per rank the reducer applies the weight.
void step(Reducer& reducer, std::size_t tensor, std::size_t first, std::size_t n, bool in_pairs, Array& out) {
  std::vector<Array> own;
  std::vector<double> weights;
  for (std::size_t i = 0; i < n; ++i) {
    own.push_back(gradient(first + i, tensor));
    weights.push_back(weight(first + i, tensor));
  }
  while (own.size() > 1) {
    const std::size_t at_once = in_pairs ? 2 : own.size();
    std::vector<Array> above;
    for (std::size_t i = 0; i < own.size(); i += at_once) {
      std::vector<const void*> terms;
      for (std::size_t k = i; k < i + at_once; ++k) terms.push_back(own[k].data());
      Array sum(own[i].dtype(), own[i].count());
      add_scaled(sum.data(), terms, {weights.data() + i, at_once}, sum.count(), sum.dtype());
      above.push_back(sum);
    }
    own = above;
    weights.assign(own.size(), 1.0);
  }
  out = own[0];
  reducer.ready(tensor, {.in = out.data(), .out = out.data(), .scale = weights[0]});
}

class TreeReducerTest : public ::testing::TestWithParam<int> {};

TEST_P(TreeReducerTest, GivesTheSameBitsOnAnyNumberOfRanks) {
  const std::size_t each = shards / static_cast<std::size_t>(GetParam());
  std::vector<Array> expected;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) expected.push_back(reference(tensor));
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{100'000}, std::size_t{100'000'000}}) {
    run_threads(GetParam(), [&](Communicator& world) {
      for (const bool with_hook : {false, true}) {
        Reducer reducer(world.duplicate_with_flat_sums(call()), Plan(tensors, threshold), {.timeout = testing::default_timeout},
                        std::make_shared<ProgressEngine>(), nullptr);
        if (with_hook) reducer.set_hook([](const PackedBucket&) { return std::nullopt; });
        std::vector<Array> out(tensors.size(), Array(TNT_FLOAT32, 0));
        for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
          step(reducer, tensor, static_cast<std::size_t>(world.rank()) * each, each, /*in_pairs=*/with_hook, out[tensor]);
        }
        reducer.finish();
        EXPECT_EQ(out, expected) << "buckets of " << threshold << (with_hook ? ", with a hook" : "");
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TreeReducerTest, ::testing::ValuesIn(testing::some_of({1, 2, 4, 8}, {1, 4})));

}  // namespace
}  // namespace tnt
