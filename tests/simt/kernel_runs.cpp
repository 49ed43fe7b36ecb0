#include "simt/kernel_runs.hpp"

#include "simt/simt.hpp"

namespace tnt::testing {

void run_pack(const gpu::BucketLaunch& launch) { gpu::pack(launch, nullptr); }

void run_unpack(const gpu::BucketLaunch& launch) { gpu::unpack(launch, nullptr); }

void run_accumulate(const gpu::BucketLaunch& launch) { gpu::accumulate(launch, nullptr); }

double run_clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit) {
  double factor = -1.0;
  gpu::clip_factor(statistics, n, limit, &factor, nullptr);
  return factor;
}

void run_sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total) {
  gpu::sum_statistics(partials, n, total, nullptr);
}

void run_reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype) {
  gpu::reduce(out, sources, n, count, dtype, nullptr);
}

void set_schedule(Schedule schedule, unsigned seed) {
  switch (schedule) {
    case Schedule::ascending: return simt::set_schedule(simt::Schedule::ascending, seed);
    case Schedule::descending: return simt::set_schedule(simt::Schedule::descending, seed);
    case Schedule::shuffled: return simt::set_schedule(simt::Schedule::shuffled, seed);
  }
}

void set_warp_size(unsigned threads) { simt::set_warp_size(threads); }

}  // namespace tnt::testing
