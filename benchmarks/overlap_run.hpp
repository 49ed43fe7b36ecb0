// `tnt-bench overlap`: a synthetic backward pass with and without the reduction of its gradients: what of it stays exposed.
#pragma once

#include "benchmarks/collective_run.hpp"

namespace tnt::bench {

// Returns how many rows were wrong (none: it measures). Collective.
[[nodiscard]] int run_overlap(const Options& options, const Team& team, Field& field, Report& report);

}  // namespace tnt::bench
