// Main gradients in float32: sums of buckets in any type in which gradients travel, at any address.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/pack.hpp"
#include "simt/bucket_case.hpp"
#include "simt/kernel_runs.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

float at(const std::byte* values, std::size_t i) {
  float value = 0.0F;
  std::memcpy(&value, values + i * sizeof(float), sizeof(float));
  return value;
}

// A bucket of 16-bit or float32 gradients, and a main gradient for each tensor but some.
struct MainGradients {
  MainGradients(tnt_dtype_t wire, Misalignment lie, unsigned seed) : test(options_of(wire, lie, seed)) {
    std::mt19937 random(seed + 9);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < test.options.tensors.size(); ++i) {
      const std::size_t n = test.options.tensors[i].count;
      const std::size_t place = lie == Misalignment::no ? 0
                                                        : random() % 128 / (lie == Misalignment::bytes ? 1 : 4) *
                                                              (lie == Misalignment::bytes ? 1 : 4);
      sums.emplace_back(n * sizeof(float), place);
      for (std::size_t k = 0; k < n; ++k) {
        const float value = normal(random);
        std::memcpy(sums.back().data() + k * sizeof(float), &value, sizeof(float));
      }
      before.push_back(sums.back().copy());
      test.arguments[i].out = i % 5 == 4 ? nullptr : sums.back().data();
    }
  }

  static CaseOptions options_of(tnt_dtype_t wire, Misalignment lie, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<TensorShape> tensors = random_tensors(wire, random);
    tensors.push_back({70'001, wire});
    for (TensorShape& tensor : tensors) tensor.dtype = wire;
    return {.wire = wire, .tensors = tensors, .tensors_lie = lie, .whole_numbers = true, .seed = seed};
  }

  void expect_added() const {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t n = test.options.tensors[i].count;
      std::vector<float> terms(n);
      const std::byte* slot = test.bucket.data() + test.layout.slots[i] * dtype_size(test.options.wire);
      scale(terms.data(), TNT_FLOAT32, slot, test.options.wire, n, 1.0);
      const bool wanted = test.arguments[i].out != nullptr;
      for (std::size_t k = 0; k < n; ++k) {
        const float old = at(before[i].data(), k);
        ASSERT_EQ(at(sums[i].data(), k), wanted ? old + terms[k] : old) << "tensor " << i << ", element " << k;
      }
      EXPECT_TRUE(sums[i].intact()) << "tensor " << i;
    }
  }

  BucketCase test;
  std::vector<Guarded> sums;
  std::vector<std::vector<std::byte>> before;
};

TEST(Accumulate, AddsEachBucketToItsMainGradients) {
  for (const tnt_dtype_t wire : {TNT_FLOAT32, TNT_FLOAT16, TNT_BFLOAT16}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const auto lie = std::array{Misalignment::no, Misalignment::elements, Misalignment::bytes}[seed % 3];
      MainGradients main(wire, lie, seed);
      run_accumulate(main.test.launch(seed % 2 == 0 ? 0 : 3));
      main.expect_added();
    }
  }
}

TEST(Accumulate, RefusesBucketsOfOtherTypes) {
  MainGradients main(TNT_FLOAT64, Misalignment::no, 1);
  EXPECT_THROW(run_accumulate(main.test.launch()), Error);
}

}  // namespace
}  // namespace tnt::gpu
