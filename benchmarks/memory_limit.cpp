#include "benchmarks/memory_limit.hpp"

#include <algorithm>
#include <cstring>

#include "benchmarks/buffers.hpp"

namespace tnt::bench {

// Measures from the first rank's start to the last rank's end, so that ranks on one core do not count twice.
double measure_bandwidth(const Team& team) {
  constexpr int tries = 7;
  const std::size_t bytes = std::max<std::size_t>(2 * last_level_cache_bytes(), std::size_t{32} << 20);
  const Pool from(bytes, 0, Cache::hot);
  const Pool to(bytes, 0, Cache::hot);
  std::memset(from.first(), 1, bytes);  // memory that was never written is one cached page of zeros
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    team.barrier();
    const std::int64_t begin = tnt_clock_ns();
    std::memcpy(to.first(), from.first(), bytes);  // of so many bytes: with streaming stores, the fastest way to copy
    const auto end = static_cast<double>(tnt_clock_ns());
    const double seconds = (team.maximum(end) + team.maximum(-static_cast<double>(begin))) * 1e-9;
    best = std::max(best, 2.0 * static_cast<double>(bytes) * team.ranks() / seconds);
  }
  return best;
}

}  // namespace tnt::bench
