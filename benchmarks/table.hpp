// The table for people: the columns and footer of nccl-tests in its order, followed by our own columns.
#pragma once

#include <cstdio>
#include <memory>

#include "benchmarks/report.hpp"

namespace tnt::bench {

// The out-of-place row and the in-place row of a size are on one line, whatever rows come between them.
[[nodiscard]] std::unique_ptr<Writer> make_table_writer(const Options& options, std::FILE* file);

}  // namespace tnt::bench
