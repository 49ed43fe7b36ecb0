// tnt-bench's collectives in simulated time.
#pragma once

#include "benchmarks/report.hpp"
#include "benchmarks/simulated/platform.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// Simulates all ranks, writes the report and ends the process: with code 1 if a row was wrong or a rank failed.
[[noreturn]] void run_simulated(const Options& options, const simgrid::s4u::Engine& engine, const Platform& platform,
                                Report& report);

}  // namespace tnt::bench
