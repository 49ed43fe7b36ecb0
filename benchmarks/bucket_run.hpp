// `tnt-bench bucket`: times pack, reduce and unpack of a whole model's gradients, beside the same steps by hand with MPI.
#pragma once

#include "benchmarks/collective_run.hpp"

namespace tnt::bench {

// Returns the number of wrong rows. Collective.
[[nodiscard]] int run_bucket(const Options& options, const Team& team, Backends& backends, Report& report);

}  // namespace tnt::bench
