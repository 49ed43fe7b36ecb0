// What tnt-bench runs.
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

// The main benchmark: one collective over sizes, types and reductions, with one row for each. Returns the number of wrong
// rows. Only rank 0 writes the report. Collective.
[[nodiscard]] int run_collective(const Options& options, const Team& team, Backends& backends, Report& report);

// Checks one backend's result for one size. Public for the test that plants errors. Collective.
[[nodiscard]] Verdict verify(Backend& backend, const Row& row, const Options& options, const Team& team);

// `tnt-bench bucket`: times pack, reduce and unpack of a whole model's gradients, beside the same steps by hand with MPI.
// Returns the number of wrong rows. Collective.
[[nodiscard]] int run_bucket(const Options& options, const Team& team, Backends& backends, Report& report);

// `tnt-bench overlap`: a synthetic backward pass with and without the reduction of its gradients; reports the exposed part.
// Returns the number of wrong rows (always 0). Collective.
[[nodiscard]] int run_overlap(const Options& options, const Team& team, Backends& backends, Report& report);

}  // namespace tnt::bench
