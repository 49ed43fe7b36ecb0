// Sum of squares and number of non-finite values that a block writes: first in each thread, then in a fixed tree over the
// block.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/convert.cuh"

namespace tnt::gpu {

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned whole_warp = 0xffffffff;

// Tests the exponent's bits, which no compiler optimises away.
template <typename T>
[[nodiscard]] __device__ __forceinline__ bool is_non_finite(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return (bits_as<std::uint32_t>(x) & 0x7f800000U) == 0x7f800000U;
  } else if constexpr (std::is_same_v<T, double>) {
    return (bits_as<std::uint64_t>(x) & 0x7ff0000000000000U) == 0x7ff0000000000000U;
  } else if constexpr (std::is_same_v<T, Float16>) {
    return (x.bits & 0x7c00U) == 0x7c00U;
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return (x.bits & 0x7f80U) == 0x7f80U;
  } else if constexpr (std::is_same_v<T, Float8E4m3> || std::is_same_v<T, Float8E5m2>) {
    return (x.bits & 0x7fU) >= T::overflow;
  } else {
    return false;
  }
}

// The sum of the squares of a vector's elements, one after another. In float32, because a double costs 32 to 64 times as much
// on most GPUs: the sum's error of 2^-21 at most is far below that of the gradients. Doubles and integers are added in double.
template <typename T>
using SquareSum = std::conditional_t<std::is_same_v<AccumulatorType<T>, float>, float, double>;

// The statistics of one thread.
class StatisticsAccumulator {
 public:
  explicit __device__ StatisticsAccumulator(bool enabled) : enabled_(enabled) {}

  [[nodiscard]] __device__ __forceinline__ bool enabled() const { return enabled_; }

  template <typename T>
  __device__ __forceinline__ void add(T written) {
    const auto x = static_cast<double>(Accumulator<T>::load(written));
    sum_ = std::fma(x, x, sum_);
    non_finite_ += is_non_finite(written) ? 1 : 0;
  }

  // A vector's elements. Where float32 would overflow or lose bits to underflow, they are added in double.
  template <typename T, unsigned n>
  __device__ __forceinline__ void add_unit(const T (&written)[n]) {
    if constexpr (std::is_same_v<SquareSum<T>, float>) {
      constexpr float least = 0x1p-100F;
      constexpr float most = 0x1p127F;
      float sum = 0.0F;
      TNT_UNROLL
      for (unsigned i = 0; i < n; ++i) {
        const float x = Accumulator<T>::load(written[i]);
        sum = std::fma(x, x, sum);
      }
      if (sum > least && sum < most) {
        sum_ += static_cast<double>(sum);
        return;
      }
    }
    TNT_UNROLL
    for (unsigned i = 0; i < n; ++i) add(written[i]);
  }

  __device__ void add(const Statistics& partial) {
    sum_ += partial.sum_of_squares;
    non_finite_ += partial.non_finite;
  }

  // totals[index] = the sum over all threads, if enabled. Every thread of the block must call it.
  __device__ void write_total(Statistics* totals, std::uint64_t index) {
    if (!enabled_) return;
    __shared__ double sums[threads / warp_size];
    __shared__ std::uint64_t counts[threads / warp_size];
    // Where 64 threads exchange values at once, as on AMD's GPUs, the first of each 32 get the same sums: they read no others.
    for (unsigned step = warp_size / 2; step > 0; step /= 2) {
      sum_ += __shfl_down_sync(whole_warp, sum_, step);
      non_finite_ += __shfl_down_sync(whole_warp, non_finite_, step);
    }
    if (threadIdx.x % warp_size == 0) {
      sums[threadIdx.x / warp_size] = sum_;
      counts[threadIdx.x / warp_size] = non_finite_;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (unsigned warp = 1; warp < threads / warp_size; ++warp) {
        sum_ += sums[warp];
        non_finite_ += counts[warp];
      }
      totals[index].sum_of_squares = sum_;
      totals[index].non_finite = non_finite_;
    }
    __syncthreads();  // the next tile reuses the arrays
  }

 private:
  bool enabled_;
  double sum_ = 0.0;
  std::uint64_t non_finite_ = 0;
};

}  // namespace tnt::gpu
