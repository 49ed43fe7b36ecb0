#include "benchmarks/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

// One line: the out-of-place row and the in-place row of a measurement, or one of them.
struct Line {
  std::optional<Row> out;
  std::optional<Row> in;

  [[nodiscard]] const Row& any() const { return out ? *out : *in; }
  [[nodiscard]] bool takes(const Row& row) const {
    const Row& ours = any();
    return (row.in_place ? !in : !out) && row.collective == ours.collective && row.backend == ours.backend &&
           row.bytes == ours.bytes && row.label == ours.label && row.dtype == ours.dtype && row.op == ours.op;
  }
  void add(const Row& row) { (row.in_place ? in : out) = row; }
};

struct Column {
  std::string group;  // heading that neighbouring columns share
  std::string title;
  std::string unit;
  std::size_t width = 0;  // including the space before it
  std::function<std::string(const Line&)> text;
};

using Get = std::function<std::string(const Row&)>;

// With as many decimals as fit, at most two.
std::string decimal(double value, std::size_t width) {
  for (int decimals = 2; decimals > 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= width) return text;
  }
  return fmt::format("{:.0f}", value);
}

// An extra figure: whole numbers have no decimals.
std::string figure(double value) { return value == std::floor(value) ? fmt::format("{:.0f}", value) : decimal(value, 8); }

std::string decimal(const std::optional<double>& value, std::size_t width) { return value ? decimal(*value, width) : "-"; }

Column common(std::string title, std::string unit, std::size_t width, Get get) {
  return {"", std::move(title), std::move(unit), width, [get](const Line& line) { return get(line.any()); }};
}

Column placed(bool in_place, const std::string& group, std::string title, std::string unit, std::size_t width, Get get) {
  return {group, std::move(title), std::move(unit), width, [in_place, get](const Line& line) -> std::string {
            const std::optional<Row>& row = in_place ? line.in : line.out;
            return row ? get(*row) : "-";
          }};
}

std::vector<Column> left_columns() {
  return {common("size", "(B)", 13, [](const Row& row) { return std::to_string(row.bytes); }),
          common("count", "(elements)", 14, [](const Row& row) { return std::to_string(row.count); }),
          common("type", "", 10, [](const Row& row) { return name(row.dtype); }),
          common("redop", "", 8, [](const Row& row) { return has_op(row.collective) ? name(row.op) : "none"; }),
          common("root", "", 8, [](const Row& row) { return std::to_string(row.root); })};
}

void add_place(std::vector<Column>& columns, bool in_place) {
  const std::string group = in_place ? "in-place" : "out-of-place";
  const auto add = [&](const char* title, const char* unit, std::size_t width, Get get) {
    columns.push_back(placed(in_place, group, title, unit, width, std::move(get)));
  };
  add("time", "(us)", 9, [](const Row& row) { return decimal(row.times.p50, 7); });
  add("algbw", "(GB/s)", 8, [](const Row& row) { return decimal(row.algbw_gbps, 6); });
  add("busbw", "(GB/s)", 8, [](const Row& row) { return decimal(row.busbw_gbps, 6); });
  add("#wrong", "", 8, [](const Row& row) { return row.verdict.check == "off" ? "N/A" : std::to_string(row.verdict.wrong); });
}

void add_more(std::vector<Column>& columns, bool in_place, const Options& options) {
  const std::string group = in_place ? "in-place" : "out-of-place";
  const auto add = [&](const std::string& title, const char* unit, std::size_t width, Get get) {
    columns.push_back(placed(in_place, group, title, unit, width, std::move(get)));
  };
  if (options.measure_limit || options.limit_gbps) {
    add("limit%", "", 8, [](const Row& row) { return row.limit_percent ? fmt::format("{:.1f}", *row.limit_percent) : "-"; });
  }
  if (!options.against) return;
  add(*options.against, "(us)", 9, [](const Row& row) { return row.against_times ? decimal(row.against_times->p50, 7) : "-"; });
  add("ratio", "", 7, [](const Row& row) { return decimal(row.ratio, 5); });
}

std::size_t widest_label(const Options& options) {
  std::size_t width = 0;
  for (const Size& size : options.sizes) width = std::max(width, size.label.size());
  return width;
}

std::vector<Column> columns_for(const Options& options, const Row& first) {
  std::vector<Column> columns = left_columns();
  const bool of_model = !first.extra.empty();
  const bool out = of_model ? !first.in_place : options.place != Place::in;
  const bool in = of_model ? first.in_place : options.place != Place::out;
  if (out) add_place(columns, false);
  if (in) add_place(columns, true);
  if (out) add_more(columns, false, options);
  if (in) add_more(columns, true, options);
  if (options.backends.size() > 1) {
    columns.push_back(common("backend", "", 14, [](const Row& row) { return row.backend; }));
  }
  if (const std::size_t width = widest_label(options); width > 0) {
    columns.push_back(common("label", "", std::max<std::size_t>(width, 5) + 2, [](const Row& row) { return row.label; }));
  }
  for (std::size_t i = 0; i < first.extra.size(); ++i) {
    const std::string& title = first.extra[i].first;
    columns.push_back(common(title, "", std::max<std::size_t>(title.size(), 8) + 2,
                             [i](const Row& row) { return i < row.extra.size() ? figure(row.extra[i].second) : "-"; }));
  }
  return columns;
}

std::string centred(const std::string& text, std::size_t width) { return fmt::format("{:^{}}", text, width); }

// The line of group headings, centred over their columns.
std::string group_line(const std::vector<Column>& columns) {
  std::string text;
  for (std::size_t i = 0; i < columns.size();) {
    std::size_t width = 0;
    const std::size_t begin = i;
    for (; i < columns.size() && columns[i].group == columns[begin].group; ++i) width += columns[i].width;
    // "out" and "in" if there is no room for the headings of nccl-tests
    const std::string& group = columns[begin].group;
    text += centred(group.size() + 2 <= width ? group : group.substr(0, group.find('-')), width);
  }
  return text;
}

class TableWriter final : public Writer {
 public:
  TableWriter(const Options& options, std::FILE* file) : options_(options), file_(file) {}

  void header(const Header& header) override {
    fmt::print(file_, "# tnt-bench {}: {}\n", header.version, name(options_.collective));
    for (const auto& [key, value] : header.facts) fmt::print(file_, "# {}: {}\n", key, value);
    if (!options_.sizes.empty()) {
      const auto [least, most] = std::minmax_element(options_.sizes.begin(), options_.sizes.end(),
                                                     [](const Size& a, const Size& b) { return a.bytes < b.bytes; });
      fmt::print(file_, "# minBytes {} maxBytes {} warmup iters: {} iters: {}\n", least->bytes, most->bytes, options_.warmup,
                 options_.iterations ? std::to_string(*options_.iterations)
                                     : fmt::format("until {:.3g} % sure or {} s", 100 * options_.target, options_.max_time));
    }
    fmt::print(file_, "# time: the median; of each iteration, the slowest rank's\n#\n");
  }

  void row(const Row& row) override {
    if (columns_.empty()) title(row);
    // rows of another size: no more rows come for the waiting lines
    if (!waiting_.empty() && (waiting_.front().any().bytes != row.bytes || waiting_.front().any().label != row.label)) flush();
    const auto line = std::find_if(waiting_.begin(), waiting_.end(), [&row](const Line& one) { return one.takes(row); });
    if (line != waiting_.end()) {
      line->add(row);
      print(*line);
      waiting_.erase(line);
    } else {
      waiting_.emplace_back().add(row);
      if (options_.place != Place::both || !row.extra.empty()) flush();
    }
    count(row);
  }

  void footer() override {
    flush();
    const std::uint64_t bad = std::max(wrong_, failed_);
    fmt::print(file_, "# Out of bounds values : {} {}\n", bad, bad == 0 ? "OK" : "FAILED");
    if (bus_.n > 0) fmt::print(file_, "# Avg bus bandwidth    : {:.6g}\n", bus_.mean());
    if (limit_.n > 0) fmt::print(file_, "# Avg share of limit   : {:.1f} %\n", limit_.mean());
    if (ratio_.n > 0)
      fmt::print(file_, "# Ratio to {:<10}  : {:.2f} (geometric mean; above 1: ours is faster)\n", against_,
                 std::exp(ratio_.mean()));
    fmt::print(file_, "#\n");
  }

 private:
  struct Mean {
    double sum = 0;
    std::size_t n = 0;
    void add(const std::optional<double>& value) {
      if (!value) return;
      sum += *value;
      ++n;
    }
    [[nodiscard]] double mean() const { return sum / static_cast<double>(n); }
  };

  void title(const Row& first) {
    columns_ = columns_for(options_, first);
    write([this] { return group_line(columns_); });
    write([this] { return joined([](const Column& column) { return column.title; }); });
    write([this] { return joined([](const Column& column) { return column.unit; }); });
  }

  // "#" replaces the first space.
  template <typename F>
  void write(F&& text) {
    std::string line = text();
    if (!line.empty()) line.front() = '#';
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print(file_, "{}\n", line);
  }

  template <typename F>
  [[nodiscard]] std::string joined(F&& text) const {
    std::string line;
    for (const Column& column : columns_) line += fmt::format(" {:>{}}", text(column), column.width - 1);
    return line;
  }

  void print(const Line& line) {
    fmt::print(file_, "{}\n", joined([&line](const Column& column) { return column.text(line); }));
    for (const std::optional<Row>* row : {&line.out, &line.in}) {
      if (!*row || (*row)->verdict.text.empty()) continue;
      fmt::print(file_, "# WRONG, {}, {}: {}\n", (*row)->backend, (*row)->in_place ? "in-place" : "out-of-place",
                 (*row)->verdict.text);
    }
  }

  void flush() {
    for (const Line& line : waiting_) print(line);
    waiting_.clear();
  }

  void count(const Row& row) {
    wrong_ += row.verdict.check == "off" ? 0 : row.verdict.wrong;
    failed_ += row.verdict.check == "wrong" ? 1 : 0;
    bus_.add(row.busbw_gbps);
    limit_.add(row.limit_percent);
    if (row.ratio && *row.ratio > 0) ratio_.add(std::log(*row.ratio));
    if (!row.against.empty()) against_ = row.against;
  }

  const Options options_;
  std::FILE* file_;
  std::vector<Column> columns_;
  std::vector<Line> waiting_;
  std::uint64_t wrong_ = 0;   // elements
  std::uint64_t failed_ = 0;  // rows: a check can fail without a wrong element
  Mean bus_;
  Mean limit_;
  Mean ratio_;
  std::string against_;
};

}  // namespace

std::unique_ptr<Writer> make_table_writer(const Options& options, std::FILE* file) {
  return std::make_unique<TableWriter>(options, file);
}

}  // namespace tnt::bench
