// The main benchmark: one collective over sizes, types and reductions, with one row for each.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "benchmarks/backend.hpp"
#include "benchmarks/report.hpp"
#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// The backends, and the memory limit.
struct Backends {
  std::vector<std::unique_ptr<Backend>> tarantella;
  std::unique_ptr<Backend> reference;      // may be null
  std::optional<double> bytes_per_second;  // of the memory; nullopt: unknown
};

// Returns the number of wrong rows. Only rank 0 writes the report. Collective.
[[nodiscard]] int run_collective(const Options& options, const Team& team, Backends& backends, Report& report);

// Checks one backend's result for one size. Public for the test that plants errors. Collective.
[[nodiscard]] Verdict verify(Backend& backend, const Row& row, const Options& options, const Team& team);

}  // namespace tnt::bench
