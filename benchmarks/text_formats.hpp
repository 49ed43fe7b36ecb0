// Rows for programs and documents: JSON lines, CSV, Markdown. The machine's facts go into every row of the first two, so that
// every line is a measurement and files can be joined.
#pragma once

#include <cstdio>
#include <memory>

#include "benchmarks/report.hpp"

namespace tnt::bench {

[[nodiscard]] std::unique_ptr<Writer> make_jsonl_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_csv_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_markdown_writer(std::FILE* file);

}  // namespace tnt::bench
