#include "kernels/cuda/load.hpp"
#include "kernels/cuda/statistics.cuh"

namespace tnt::gpu {
namespace {

// One block is enough: the partials of a gigabyte are a megabyte. Each thread adds every 256th partial; then the block's tree.
__global__ void __launch_bounds__(threads) sum_kernel(const Statistics* partials, std::uint32_t n, Statistics* total) {
  StatisticsAccumulator stats(true);
  for (std::uint64_t i = threadIdx.x; i < n; i += threads) stats.add(partials[i]);
  stats.write_total(total, 0);
}

}  // namespace

void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream) {
  TNT_LAUNCH(1, stream, sum_kernel, partials, n, total);
}

void load_statistics() { TNT_LOAD(sum_kernel); }

}  // namespace tnt::gpu
