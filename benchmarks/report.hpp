// What the user gets: one row per measurement, as a table, JSON lines, CSV or Markdown.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// algbw times this is busbw, as in nccl-tests: what the links between n ranks carry, the same for every n on a perfect
// network. 0 on one rank for all but broadcast.
[[nodiscard]] double busbw_factor(Collective collective, int ranks);

[[nodiscard]] bool has_op(Collective collective);

// A line of the JSON output: schema "tnt-bench/1". Keys are only ever added.
[[nodiscard]] nlohmann::ordered_json to_json(const Row& row, const Header& header);

// How one format is written. All text of one row is written at once, and flushed: a run that is killed leaves whole rows.
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
  // To options.output or standard output. active false: a rank that does not write; its calls do nothing.
  explicit Report(const Options& options, bool active = true);
  Report(const Options& options, std::FILE* file);  // file stays the caller's
  ~Report();

  void header(const Header& header);
  void row(const Row& row);
  void footer();  // throws Failure if not everything could be written

 private:
  void check_written();

  std::string path_;
  std::FILE* file_ = nullptr;  // null: not active
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned_{nullptr, nullptr};
  std::unique_ptr<Writer> writer_;
};

}  // namespace tnt::bench
