#include "benchmarks/report.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "benchmarks/shape.hpp"

namespace tnt::bench {
namespace {

// Six digits: more than clocks and machines justify.
nlohmann::ordered_json number(double value) { return std::stod(fmt::format("{:.6g}", value)); }

nlohmann::ordered_json number(const std::optional<double>& value) { return value ? number(*value) : nlohmann::ordered_json(); }

std::unique_ptr<Writer> writer_for(const Options& options, std::FILE* file) {
  switch (options.format) {
    case Format::jsonl: return make_jsonl_writer(file);
    case Format::csv: return make_csv_writer(file);
    case Format::md: return make_markdown_writer(file);
    case Format::table: break;
  }
  return make_table_writer(options, file);
}

}  // namespace

double busbw_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::bucket:
    case Collective::overlap: return 2 * (n - 1) / n;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_gather: return (n - 1) / n;
    case Collective::sendrecv:
    case Collective::reduce:
    case Collective::broadcast: return 1;
    case Collective::barrier: return 0;
  }
  return 0;
}

bool has_op(Collective collective) {
  return reduces(collective) || collective == Collective::bucket || collective == Collective::overlap;
}

nlohmann::ordered_json to_json(const Row& row, const Header& header) {
  const bool checked = row.verdict.check != "off";
  nlohmann::ordered_json json{{"schema", "tnt-bench/1"},
                              {"collective", name(row.collective)},
                              {"backend", row.backend},
                              {"ranks", row.ranks},
                              {"bytes", row.bytes},
                              {"count", row.count},
                              {"label", row.label},
                              {"dtype", name(row.dtype)},
                              {"op", has_op(row.collective) ? name(row.op) : "none"},
                              {"root", row.root},
                              {"in_place", row.in_place},
                              {"cache", name(row.cache)},
                              {"unalign", row.unalign},
                              {"iterations", row.times.iterations},
                              {"first_us", number(row.times.first)},
                              {"time_us_min", number(row.times.min)},
                              {"time_us_p50", number(row.times.p50)},
                              {"time_us_p95", number(row.times.p95)},
                              {"time_us_max", number(row.times.max)},
                              {"algbw_gbps", number(row.algbw_gbps)},
                              {"busbw_gbps", number(row.busbw_gbps)},
                              {"limit_percent", number(row.limit_percent)},
                              {"check", row.verdict.check}};
  json["wrong"] = checked ? nlohmann::ordered_json(row.verdict.wrong) : nlohmann::ordered_json();
  json["max_ulp"] = checked ? number(row.verdict.max_ulp) : nlohmann::ordered_json();
  json["hash"] = checked ? nlohmann::ordered_json(fmt::format("{:016x}", row.verdict.hash)) : nlohmann::ordered_json();
  json["error"] = row.verdict.text;
  json["against"] = row.against.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.against);
  json["against_time_us_p50"] = row.against_times ? number(row.against_times->p50) : nlohmann::ordered_json();
  json["against_time_us_p95"] = row.against_times ? number(row.against_times->p95) : nlohmann::ordered_json();
  json["ratio"] = number(row.ratio);
  json["extra"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : row.extra) json["extra"][key] = number(value);
  json["environment"] = nlohmann::ordered_json::object();
  json["environment"]["tarantella"] = header.version;
  for (const auto& [key, value] : header.facts) json["environment"][key] = value;
  return json;
}

Report::Report(const Options& options, bool active) : path_(options.output) {
  if (!active) return;
  file_ = stdout;
  if (!path_.empty()) {
    owned_ = {std::fopen(path_.c_str(), "w"), &std::fclose};
    file_ = owned_.get();
    if (file_ == nullptr) throw Failure(fmt::format("-o {}: cannot be written: {}", path_, std::strerror(errno)), 2);
  }
  writer_ = writer_for(options, file_);
}

Report::Report(const Options& options, std::FILE* file) : file_(file), writer_(writer_for(options, file)) {}

Report::~Report() = default;

void Report::header(const Header& header) {
  if (file_ == nullptr) return;
  writer_->header(header);
  check_written();
}

void Report::row(const Row& row) {
  if (file_ == nullptr) return;
  writer_->row(row);
  check_written();
}

void Report::footer() {
  if (file_ == nullptr) return;
  writer_->footer();
  check_written();
}

void Report::check_written() {
  errno = 0;
  if (std::fflush(file_) == 0 && std::ferror(file_) == 0) return;
  throw Failure(fmt::format("cannot write {}: {}", path_.empty() ? "the output" : path_, std::strerror(errno)));
}

}  // namespace tnt::bench
