#include "kernels/cuda/host_side.hpp"
#include "kernels/cuda/statistics.cuh"

namespace tnt::gpu {
namespace {

// One block is enough: the partials of a gigabyte are a megabyte. Each thread adds every 256th partial; then the block's tree.
__global__ void __launch_bounds__(threads) sum_kernel(const Statistics* partials, std::uint32_t n, Statistics* total) {
  StatisticsAccumulator stats(true);
  for (std::uint64_t i = threadIdx.x; i < n; i += threads) stats.add(partials[i]);
  stats.write_total(total, 0);
}

// One thread: a model has few buckets, and the order of the additions is that of the buckets.
__global__ void __launch_bounds__(threads)
    clip_kernel(const Statistics* statistics, std::uint32_t n, double limit, double* factor) {
  if (threadIdx.x != 0) return;
  double squares = 0.0;
  for (std::uint32_t i = 0; i < n; ++i) squares += statistics[i].sum_of_squares;
  const double norm = std::sqrt(squares);
  *factor = !is_non_finite(norm) && norm > limit ? limit / norm : 1.0;
}

}  // namespace

void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream) {
  TNT_LAUNCH(1, stream, sum_kernel, partials, n, total);
}

void clip_factor(const Statistics* statistics, std::uint32_t n, double limit, double* factor, Stream stream) {
  TNT_LAUNCH(1, stream, clip_kernel, statistics, n, limit, factor);
}

void load_statistics() {
  TNT_LOAD(sum_kernel);
  TNT_LOAD(clip_kernel);
}

}  // namespace tnt::gpu
