#include "kernels/cuda/statistics.cuh"

namespace tnt::gpu {
namespace {

// One block: the partials of a gigabyte are a megabyte. Each thread adds up every 256th partial, then the tree.
__global__ void __launch_bounds__(threads) sum_kernel(const Statistics* partials, std::uint32_t n, Statistics* total) {
  StatisticsAccumulator stats(true);
  for (std::uint64_t i = threadIdx.x; i < n; i += threads) stats.add(partials[i]);
  stats.write_total(total, 0);
}

}  // namespace

void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream) {
  TNT_LAUNCH(1, stream, sum_kernel, partials, n, total);
}

}  // namespace tnt::gpu
