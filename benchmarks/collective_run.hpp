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
struct Field {
  std::vector<std::unique_ptr<Backend>> own;
  std::unique_ptr<Backend> peer;           // may be null
  std::optional<double> bytes_per_second;  // of the memory; nullopt: unknown
};

// Returns the number of wrong rows. Only rank 0 writes the report. Collective.
[[nodiscard]] int run_collective(const Options& options, const Team& team, Field& field, Report& report);

// Checks one backend's result for one size. Public for the test that plants errors. Collective.
[[nodiscard]] Verdict verify(Backend& backend, const Row& row, const Options& options, const Team& team);

}  // namespace tnt::bench
