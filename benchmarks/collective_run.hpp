// The main job: one collective over sizes, types and reductions; a row for each.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "benchmarks/backend.hpp"
#include "benchmarks/report.hpp"
#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// Who takes part, and what the memory can do.
struct Field {
  std::vector<std::unique_ptr<Backend>> own;
  std::unique_ptr<Backend> peer;           // may be null
  std::optional<double> bytes_per_second;  // of the memory; nullopt: not known
};

// Returns how many rows were wrong. Only rank 0 writes to the report. Collective.
[[nodiscard]] int run_collective(const Options& options, const Team& team, Field& field, Report& report);

// The checks of one backend's result for one size; public for the test that plants errors. Collective.
[[nodiscard]] Verdict verify(Backend& backend, const Row& row, const Options& options, const Team& team);

}  // namespace tnt::bench
