// The ceiling: how fast the memory of this machine is when all ranks copy at once.
#pragma once

#include "benchmarks/start.hpp"

namespace tnt::bench {

// Bytes a second, read and written counted, of all ranks together copying buffers that no cache holds: the best of several
// tries. Takes about 0.3 s. Collective.
[[nodiscard]] double measure_bandwidth(const Team& team);

}  // namespace tnt::bench
