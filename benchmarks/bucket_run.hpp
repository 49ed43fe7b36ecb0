// `tnt-bench bucket`: a whole model's gradients through pack, reduce and unpack, each timed, beside the same by hand over MPI.
#pragma once

#include "benchmarks/collective_run.hpp"

namespace tnt::bench {

// Returns how many rows were wrong. Collective.
[[nodiscard]] int run_bucket(const Options& options, const Team& team, Field& field, Report& report);

}  // namespace tnt::bench
