#include "benchmarks/limit.hpp"

#include <algorithm>
#include <cstring>

#include "benchmarks/buffers.hpp"

namespace tnt::bench {

double measure_bandwidth(const Team& team) {
  constexpr int tries = 7;
  const std::size_t bytes = std::max<std::size_t>(2 * last_level_cache_bytes(), std::size_t{32} << 20);
  const Pool from(bytes, 0, Cache::hot);
  const Pool to(bytes, 0, Cache::hot);
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    team.barrier();
    const std::int64_t begin = tnt_clock_ns();
    std::memcpy(to.first(), from.first(), bytes);  // streams past the caches at this size
    const double seconds = team.maximum(static_cast<double>(tnt_clock_ns() - begin) * 1e-9);
    best = std::max(best, 2.0 * static_cast<double>(bytes) * team.ranks() / seconds);
  }
  return best;
}

}  // namespace tnt::bench
