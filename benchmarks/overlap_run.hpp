// `tnt-bench overlap`: a synthetic backward pass with and without the reduction of its gradients; reports the exposed part.
#pragma once

#include "benchmarks/collective_run.hpp"

namespace tnt::bench {

// Returns the number of wrong rows (always 0). Collective.
[[nodiscard]] int run_overlap(const Options& options, const Team& team, Backends& backends, Report& report);

}  // namespace tnt::bench
