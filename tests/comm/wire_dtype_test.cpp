// Tensors with a 16-bit wire type: exact where 16 bits suffice, within the bound otherwise, the same on all ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::call;
using testing::exact_values;
using testing::run_threads;

constexpr tnt_dtype_t wires[] = {TNT_FLOAT16, TNT_BFLOAT16};

class WireDtypeTest : public ::testing::TestWithParam<int> {};

// Three fused tensors; with `mixed` the last one has 16 bits itself. Sizes for every algorithm of every transport.
TEST_P(WireDtypeTest, WhatNeedsNoRoundingIsExact) {
  for (const tnt_dtype_t wire : wires) {
    for (const bool mixed : {false, true}) {
      for (const std::size_t count : testing::some_of({3U, 500U, 9'000U, 400'000U}, {3U, 9'000U, 100'000U})) {
        const std::vector<tnt_dtype_t> dtypes{TNT_FLOAT32, TNT_FLOAT64, mixed ? wire : TNT_FLOAT32};
        run_threads(GetParam(), [&](Communicator& comm) {
          std::vector<Array> values;
          std::vector<TensorView> views;
          for (const tnt_dtype_t dtype : dtypes)
            values.push_back(exact_values(dtype, count, static_cast<unsigned>(comm.rank())));
          for (std::size_t i = 0; i < dtypes.size(); ++i) {
            views.push_back(
                {.in = values[i].data(), .out = values[i].data(), .count = count, .scale = 0.5, .dtype = dtypes[i]});
          }
          all_reduce(comm, tnt::FusedBuffer(views, wire), TNT_SUM, call());
          for (std::size_t i = 0; i < dtypes.size(); ++i) {
            std::vector<Array> in;
            for (int rank = 0; rank < comm.size(); ++rank) {
              in.push_back(exact_values(dtypes[i], count, static_cast<unsigned>(rank)));
            }
            EXPECT_EQ(values[i], testing::repeated(dtypes[i], count,
                                                   [&](std::size_t k) {
                                                     double sum = 0;
                                                     for (const Array& one : in) sum += 0.5 * one.get(k);
                                                     return sum;
                                                   }))
                << dtype_name(wire) << " from " << dtype_name(dtypes[i]) << " " << count;
          }
        });
      }
    }
  }
}

struct Case {
  tnt_dtype_t wire;
  double unit;    // the largest relative error of a rounding
  double lowest;  // the largest absolute error among denormals
};

// n roundings of inputs, one of the result, sums in float32. Every element of a rank is its own random number, so no two ranks
// have the same errors.
TEST_P(WireDtypeTest, TheErrorIsWithinTheBound) {
  for (const auto& [wire, unit, lowest] : {Case{TNT_BFLOAT16, 0x1p-8, 0x1p-134}, Case{TNT_FLOAT16, 0x1p-11, 0x1p-25}}) {
    for (const std::size_t count : {100U, 3'000U, 200'001U}) {
      const auto ranks = static_cast<std::size_t>(GetParam());
      std::vector<std::vector<float>> in(ranks, std::vector<float>(count));
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (float& value : in[rank]) {
          value = std::ldexp(static_cast<float>(random() % 2'000'001) - 1e6F, static_cast<int>(random() % 24) - 36);
        }
      }
      run_threads(GetParam(), [&](Communicator& comm) {
        std::vector<float> out(count);
        const TensorView view{
            .in = in[static_cast<std::size_t>(comm.rank())].data(), .out = out.data(), .count = count, .dtype = TNT_FLOAT32};
        all_reduce(comm, tnt::FusedBuffer({&view, 1}, wire), TNT_SUM, call());
        double worst = 0;
        bool rounded = false;
        for (std::size_t i = 0; i < count; ++i) {
          double exact = 0;
          double magnitudes = 0;
          for (const auto& one : in) {
            exact += static_cast<double>(one[i]);
            magnitudes += std::fabs(static_cast<double>(one[i]));
          }
          const double second_order = 1 + unit + static_cast<double>(ranks) * 0x1p-24;
          const double bound =
              unit * (magnitudes + std::fabs(exact)) * second_order + unit * unit * magnitudes + (ranks + 1.0) * lowest;
          const double error = std::fabs(static_cast<double>(out[i]) - exact);
          worst = std::max(worst, error / bound);
          rounded = rounded || error > 0;
        }
        EXPECT_LE(worst, 1.0) << dtype_name(wire) << " " << count;
        EXPECT_TRUE(rounded) << "nothing was rounded: the test sees nothing";
        std::vector<float> all(count * ranks);
        all_gather(comm, out.data(), all.data(), count, TNT_FLOAT32, call());
        for (std::size_t rank = 1; rank < ranks; ++rank) {
          EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * count)));
        }
      });
    }
  }
}

TEST_P(WireDtypeTest, WhatIsTooLargeForFloat16IsInfiniteOnAllRanks) {
  for (const std::size_t count : {2U, 40'000U}) {
    run_threads(GetParam(), [&](Communicator& comm) {
      std::vector<float> values(count, 1.0F);
      values[0] = 60'000.0F;  // each is representable, the sum of two is not
      const TensorView view{.in = values.data(), .out = values.data(), .count = count, .dtype = TNT_FLOAT32};
      all_reduce(comm, tnt::FusedBuffer({&view, 1}, TNT_FLOAT16), TNT_SUM, call());
      EXPECT_EQ(values[0], comm.size() == 1 ? 60'000.0F : std::numeric_limits<float>::infinity());
      EXPECT_EQ(values[1], static_cast<float>(comm.size()));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WireDtypeTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3})));

}  // namespace
}  // namespace tnt
