// Reports: one row for each measurement, as a table, JSON Lines, CSV or Markdown.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdio>
#include <memory>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// busbw = algbw * this factor, as in nccl-tests: the traffic of the links between n ranks, the same for every n on a perfect
// network. 0 on one rank, except for broadcast.
[[nodiscard]] double busbw_factor(Collective collective, int ranks);

[[nodiscard]] bool has_op(Collective collective);

// A line of the JSON output, schema "tnt-bench/1". New keys may be added; existing keys do not change.
[[nodiscard]] nlohmann::ordered_json to_json(const Row& row, const Header& header);

// The writer of one format. The text of a row is written and flushed at once, so that a killed run leaves whole rows.
class Writer {
 public:
  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  virtual ~Writer() = default;
  virtual void header(const Header& header) = 0;
  virtual void row(const Row& row) = 0;
  virtual void footer() = 0;
};

class Report {
 public:
  // Writes to options.output or standard output. active false: for ranks that do not write; calls do nothing.
  explicit Report(const Options& options, bool active = true);
  Report(const Options& options, std::FILE* file);  // the caller owns file
  ~Report();

  void header(const Header& header);
  void row(const Row& row);
  void footer();  // throws Failure if writing failed

 private:
  void check_written();

  std::string path_;
  std::FILE* file_ = nullptr;  // null: not active
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned_{nullptr, nullptr};
  std::unique_ptr<Writer> writer_;
};

// The table for people: the columns and footer of nccl-tests in its order, followed by our own columns.
//
// The out-of-place row and the in-place row of a size are on one line, whatever rows come between them.
[[nodiscard]] std::unique_ptr<Writer> make_table_writer(const Options& options, std::FILE* file);

// Rows for programs and documents: JSON Lines, CSV, Markdown. In the first two, every row has the facts of the machine, so that
// every line is a complete measurement and files can be concatenated.
[[nodiscard]] std::unique_ptr<Writer> make_jsonl_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_csv_writer(std::FILE* file);
[[nodiscard]] std::unique_ptr<Writer> make_markdown_writer(std::FILE* file);

}  // namespace tnt::bench
