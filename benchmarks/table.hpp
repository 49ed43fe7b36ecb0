// The table for people: nccl-tests' columns in its order and its footer; what it does not have comes behind them.
#pragma once

#include <cstdio>
#include <memory>

#include "benchmarks/report.hpp"

namespace tnt::bench {

// The out-of-place and the in-place row of one size stand in one line, whatever comes between them.
[[nodiscard]] std::unique_ptr<Writer> make_table_writer(const Options& options, std::FILE* file);

}  // namespace tnt::bench
