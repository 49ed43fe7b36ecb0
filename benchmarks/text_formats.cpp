#include "benchmarks/report.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

using Json = nlohmann::ordered_json;

class JsonlWriter final : public Writer {
 public:
  explicit JsonlWriter(std::FILE* file) : file_(file) {}
  void header(const Header& header) override { header_ = header; }
  void row(const Row& row) override {
    const Json json = to_json(row, header_);
    fmt::print(file_, "{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  void footer() override {}

 private:
  std::FILE* file_;
  Header header_;
};

// RFC 4180, but with \n. Objects become "key=value; key=value".
class CsvWriter final : public Writer {
 public:
  explicit CsvWriter(std::FILE* file) : file_(file) {}
  void header(const Header& header) override { header_ = header; }
  void row(const Row& row) override {
    std::vector<std::string> names;
    std::vector<std::string> values;
    const Json json = to_json(row, header_);
    for (const auto& [key, value] : json.items()) {
      names.push_back(key);
      values.push_back(quoted(text(value)));
    }
    if (!titled_) fmt::print(file_, "{}\n", fmt::join(names, ","));
    titled_ = true;
    fmt::print(file_, "{}\n", fmt::join(values, ","));
  }
  void footer() override {}

 private:
  static std::string text(const Json& value) {
    if (value.is_null()) return "";
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_object()) return value.dump();
    std::vector<std::string> pairs;
    for (const auto& [key, inner] : value.items()) pairs.push_back(key + "=" + text(inner));
    return fmt::format("{}", fmt::join(pairs, "; "));
  }

  static std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string result = "\"";
    for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
    return result + "\"";
  }

  std::FILE* file_;
  Header header_;
  bool titled_ = false;
};

class MarkdownWriter final : public Writer {
 public:
  explicit MarkdownWriter(std::FILE* file) : file_(file) {}

  void header(const Header& header) override {
    fmt::print(file_, "* tnt-bench: {}\n", header.version);
    for (const auto& [key, value] : header.facts) fmt::print(file_, "* {}: {}\n", key, value);
    fmt::print(file_, "\n");
  }

  void row(const Row& row) override {
    std::vector<Cell> cells = common(row);
    if (row.against_times) {
      cells.push_back({row.against + " (µs)", fmt::format("{:.2f}", row.against_times->p50), true});
      cells.push_back({"ratio", optional(row.ratio), true});
    }
    for (const auto& [key, value] : row.extra) cells.push_back({key, fmt::format("{:.4g}", value), true});
    title(cells);
    line(cells, [](const Cell& cell) { return cell.text; });
    if (!row.verdict.text.empty()) errors_.push_back(row.verdict.text);
  }

  void footer() override {
    if (!errors_.empty()) fmt::print(file_, "\n");
    for (const std::string& error : errors_) fmt::print(file_, "* **wrong**: {}\n", error);
  }

 private:
  struct Cell {
    std::string title;
    std::string text;
    bool right = false;
    bool operator==(const Cell&) const = default;
  };

  static std::vector<Cell> common(const Row& row) {
    return {
        {"collective", name(row.collective)},
        {"backend", row.backend},
        {"ranks", std::to_string(row.ranks), true},
        {"size", row.label.empty() ? format_size(row.bytes) : fmt::format("{} ({})", format_size(row.bytes), row.label), true},
        {"type", name(row.dtype)},
        {"op", has_op(row.collective) ? name(row.op) : "none"},
        {"place", row.in_place ? "in" : "out"},
        {"p50 (µs)", fmt::format("{:.2f}", row.times.p50), true},
        {"p95 (µs)", fmt::format("{:.2f}", row.times.p95), true},
        {"algbw (GB/s)", optional(row.algbw_gbps), true},
        {"busbw (GB/s)", optional(row.busbw_gbps), true},
        {"limit%", row.limit_percent ? fmt::format("{:.1f}", *row.limit_percent) : "-", true},
        {"check", row.verdict.check}};
  }

  static std::string optional(const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : "-"; }

  template <typename F>
  void line(const std::vector<Cell>& cells, F&& f) {
    for (const Cell& cell : cells) fmt::print(file_, "| {} ", f(cell));
    fmt::print(file_, "|\n");
  }

  // Begins a new table where the columns change.
  void title(const std::vector<Cell>& cells) {
    std::vector<std::string> titles;
    for (const Cell& cell : cells) titles.push_back(cell.title);
    if (titles == titles_) return;
    if (!titles_.empty()) fmt::print(file_, "\n");
    titles_ = titles;
    line(cells, [](const Cell& cell) { return cell.title; });
    line(cells, [](const Cell& cell) { return cell.right ? "---:" : "---"; });
  }

  std::FILE* file_;
  std::vector<std::string> titles_;
  std::vector<std::string> errors_;
};

}  // namespace

std::unique_ptr<Writer> make_jsonl_writer(std::FILE* file) { return std::make_unique<JsonlWriter>(file); }
std::unique_ptr<Writer> make_csv_writer(std::FILE* file) { return std::make_unique<CsvWriter>(file); }
std::unique_ptr<Writer> make_markdown_writer(std::FILE* file) { return std::make_unique<MarkdownWriter>(file); }

}  // namespace tnt::bench
