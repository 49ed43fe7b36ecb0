// The rows of a run before they are measured, and what follows from a row's time.
#pragma once

#include <optional>
#include <vector>

#include "benchmarks/test_data.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// Each dtype, op, size and place of the options, in the order of the report.
[[nodiscard]] std::vector<Row> planned_rows(const Options& options, int ranks);

// What `rank` computes in this row, from the input of seed 1.
[[nodiscard]] Problem problem_of(const Row& row, int rank);

// Fills in the bandwidths of row.times.p50. bytes_per_second: what the memory can do, if it is known.
void add_bandwidth(Row& row, std::optional<double> bytes_per_second);

}  // namespace tnt::bench
