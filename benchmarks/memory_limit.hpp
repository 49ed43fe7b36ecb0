// The memory limit: the bandwidth when all ranks copy at the same time.
#pragma once

#include "benchmarks/start.hpp"

namespace tnt::bench {

// Bytes per second, read plus written, of all ranks together, for copies of buffers that exceed the caches; the best of several
// tries. Takes about 0.3 s. Collective.
[[nodiscard]] double measure_bandwidth(const Team& team);

}  // namespace tnt::bench
