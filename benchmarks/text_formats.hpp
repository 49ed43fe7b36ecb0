// Rows for programs and documents: JSON Lines, CSV, Markdown. In the first two, every row has the facts of the machine, so that
// every line is a complete measurement and files can be concatenated.
#pragma once

#include <cstdio>
#include <memory>

#include "benchmarks/report.hpp"

namespace tnt::bench {

[[nodiscard]] std::unique_ptr<Writer> make_jsonl_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_csv_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_markdown_writer(std::FILE* file);

}  // namespace tnt::bench
