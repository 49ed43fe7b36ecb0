// Reduce on the device compared with the host: every type, number of buffers and alignment.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/cuda/bucket_kernels.hpp"
#include "simt/guarded.hpp"
#include "simt/kernel_runs.hpp"
#include "support/array.hpp"
#include "support/effort.hpp"
#include "support/tree.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

// n buffers of random values, each at its own address.
struct Buffers {
  Buffers(int n, tnt_dtype_t dtype, std::size_t count, unsigned seed, std::size_t step = 0) {
    std::mt19937 random(seed);
    for (int i = 0; i < n; ++i) {
      memory.emplace_back(count * dtype_size(dtype), static_cast<std::size_t>(i) * step);
      fill_random(memory.back().data(), dtype, count, random);
    }
    for (const Guarded& buffer : memory) sources.push_back(buffer.data());
  }
  std::vector<Guarded> memory;
  std::vector<const void*> sources;
};

template <typename T>
T element_of(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

std::vector<std::byte> expected_sum(const std::vector<const void*>& sources, std::size_t count, tnt_dtype_t dtype) {
  std::vector<std::byte> result(count * dtype_size(dtype));
  if (!is_float(dtype)) {
    tnt::reduce(result.data(), sources, count, dtype, TNT_SUM);
    return result;
  }
  dispatch(dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<typename tnt::Accumulator<T>::type> terms;
      for (const void* source : sources) terms.push_back(tnt::Accumulator<T>::load(element_of<T>(source, i)));
      if constexpr (!std::is_integral_v<T>) {
        const T sum = tnt::Accumulator<T>::store(tree_sum_of(terms));
        std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
      }
    }
  });
  return result;
}

void reduce_and_compare(int n, tnt_dtype_t dtype, std::size_t count, std::size_t out_at, std::size_t step) {
  const Buffers buffers(n, dtype, count, static_cast<unsigned>(n + count), step);
  Guarded out(count * dtype_size(dtype), out_at);
  run_reduce(out.data(), buffers.sources.data(), n, count, dtype);
  const auto expected = expected_sum(buffers.sources, count, dtype);
  const std::size_t at = first_difference(out.data(), expected.data(), dtype, count);
  ASSERT_EQ(at, count) << "element " << at << " of " << n << " buffers of " << count << " " << dtype_name(dtype) << " at "
                       << out_at << ", " << step;
  ASSERT_TRUE(out.intact());
}

class GpuReduce : public ::testing::TestWithParam<int> {};  // number of buffers

TEST_P(GpuReduce, EqualsTheHost) {
  const int n = GetParam();
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::size_t size = dtype_size(dtype);
    for (const std::size_t count : {0U, 1U, 7U, 63U, 1024U, 1025U}) {
      ASSERT_NO_FATAL_FAILURE(reduce_and_compare(n, dtype, count, 0, 0));
      ASSERT_NO_FATAL_FAILURE(reduce_and_compare(n, dtype, count, size, size));
      ASSERT_NO_FATAL_FAILURE(reduce_and_compare(n, dtype, count, 0, 1));
      ASSERT_NO_FATAL_FAILURE(reduce_and_compare(n, dtype, count, 3, size));
    }
  }
}

TEST_P(GpuReduce, MayWriteOverASource) {
  const int n = GetParam();
  constexpr std::size_t count = 6001;
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_INT64}) {
    for (const int target : {0, n / 2, n - 1}) {
      for (const std::size_t step : {std::size_t{0}, dtype_size(dtype)}) {
        Buffers buffers(n, dtype, count, 5, step);
        const auto expected = expected_sum(buffers.sources, count, dtype);
        Guarded& out = buffers.memory[static_cast<std::size_t>(target)];
        run_reduce(out.data(), buffers.sources.data(), n, count, dtype);
        ASSERT_EQ(first_difference(out.data(), expected.data(), dtype, count), count)
            << dtype_name(dtype) << " into " << target;
        ASSERT_TRUE(out.intact());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Buffers, GpuReduce,
                         ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 33, 48, 63, 64},
                                                              {1, 2, 3, 5, 8, 13, 33})));

TEST(GpuReduceOnce, MovesMegabytes) {
  ASSERT_NO_FATAL_FAILURE(reduce_and_compare(3, TNT_FLOAT32, effort(500'003, 50'003), 4, 4));
  ASSERT_NO_FATAL_FAILURE(reduce_and_compare(4, TNT_BFLOAT16, effort(1'000'000, 100'000), 0, 0));
}

TEST(GpuReduceOnce, RefusesNoBuffersAndTooMany) {
  float out = 0;
  const std::vector<const void*> sources(65, &out);
  for (const int n : {-1, 0, 65}) {
    try {
      run_reduce(&out, sources.data(), n, 1, TNT_FLOAT32);
      FAIL() << "no error for " << n;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "cannot reduce " + std::to_string(n) + " buffers on a GPU at once: 1 to 64 can be");
    }
  }
}

}  // namespace
}  // namespace tnt::gpu
