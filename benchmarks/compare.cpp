#include "benchmarks/compare.hpp"

#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "benchmarks/flags.hpp"
#include "benchmarks/parsing.hpp"
#include "benchmarks/sizes.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* schema = "tnt-bench/1";

// Identifies a measurement; rows are listed in this order.
struct Key {
  std::string collective, backend;
  std::int64_t ranks = 0;
  std::string dtype, op;
  std::size_t bytes = 0;
  std::string label;
  bool in_place = false;
  std::string cache;
  std::int64_t root = -1, unalign = 0;
  auto operator<=>(const Key&) const = default;

  [[nodiscard]] std::string text() const {
    return fmt::format("{:<14} {:<12} {:>3} ranks {:>8} {:<8} {:<4} {:<3}{}{}{}{}", collective, backend, ranks,
                       format_size(bytes), dtype, op, in_place ? "in" : "out", cache == "hot" ? " hot" : "",
                       unalign > 0 ? fmt::format(" unalign {}", unalign) : "", root > 0 ? fmt::format(" root {}", root) : "",
                       label.empty() ? "" : " " + label);
  }
};

struct Measured {
  double p50 = 0;
  double p95 = 0;
  bool wrong = false;
  int line = 0;
};

using Rows = std::map<Key, Measured>;

// Printing a value takes stack for each of its levels.
bool refuse_depth(int depth, Json::parse_event_t event, const Json& /*parsed*/) {
  constexpr int max_depth = 16;  // a row has 2
  const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
  if (opens && depth >= max_depth) throw Failure(fmt::format("more than {} levels of lists and objects", max_depth));
  return true;
}

// The library converts 3e45 to an integer without a check.
const Json& integer(const Json& json) {
  if (!json.is_number_integer()) throw Failure(fmt::format("{} is no integer", json.dump()));
  return json;
}

std::pair<Key, Measured> read_row(const std::string& text, int line) {
  const Json json = Json::parse(text, refuse_depth);
  if (json.at("schema") != schema) throw Failure(fmt::format("schema {} is not {}", json.at("schema").dump(), schema));
  const Key key{.collective = json.at("collective"),
                .backend = json.at("backend"),
                .ranks = integer(json.at("ranks")),
                .dtype = json.at("dtype"),
                .op = json.at("op"),
                .bytes = integer(json.at("bytes")),
                .label = json.value("label", ""),
                .in_place = json.at("in_place"),
                .cache = json.value("cache", "rotate"),
                .root = integer(json.value("root", Json(-1))),
                .unalign = integer(json.value("unalign", Json(0)))};
  const Measured row{
      .p50 = json.at("time_us_p50"), .p95 = json.at("time_us_p95"), .wrong = json.at("check") == "wrong", .line = line};
  if (!(row.p50 > 0) || !(row.p95 >= row.p50)) throw Failure("time_us_p50 and time_us_p95 are no times");
  return {key, row};
}

Rows read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Failure(fmt::format("{}: cannot be read", path), 2);
  Rows rows;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const auto [key, row] = read_row(text, line);
      const auto [at, added] = rows.emplace(key, row);
      if (!added) throw Failure(fmt::format("the same measurement as line {}", at->second.line));
    } catch (const Json::exception& error) {
      throw Failure(fmt::format("{}:{}: no row of tnt-bench --format jsonl ({})", path, line, error.what()), 2);
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}:{}: {}", path, line, failure.what()), 2);
    }
  }
  if (rows.empty()) throw Failure(fmt::format("{}: no rows", path), 2);
  return rows;
}

const char* judge(const Measured& a, const Measured& b, double threshold) {
  if (b.wrong) return "WRONG";
  if (b.p50 > a.p50 * (1 + threshold) && b.p50 > a.p95) return "SLOWER";
  if (a.p50 > b.p50 * (1 + threshold) && a.p50 > b.p95) return "faster";
  return "";
}

void list_missing(const Rows& rows, const Rows& others, const std::string& path, std::FILE* out) {
  for (const auto& [key, row] : rows) {
    if (!others.contains(key)) fmt::print(out, "{}  only in {}\n", key.text(), path);
  }
}

}  // namespace

int compare(const std::string& a, const std::string& b, double threshold, std::FILE* out) {
  const Rows before = read_rows(a);
  const Rows after = read_rows(b);
  std::map<std::string, int> number;
  double logarithms = 0;
  int matched = 0;
  for (const auto& [key, old] : before) {
    const auto found = after.find(key);
    if (found == after.end()) continue;
    const Measured& now = found->second;
    const std::string verdict = judge(old, now, threshold);
    fmt::print(out, "{}  {:>10.2f} us -> {:>10.2f} us  x {:.3f}{}{}\n", key.text(), old.p50, now.p50, now.p50 / old.p50,
               verdict.empty() ? "" : "  ", verdict);
    ++number[verdict];
    logarithms += std::log(now.p50 / old.p50);
    ++matched;
  }
  list_missing(before, after, a, out);
  list_missing(after, before, b, out);
  if (matched == 0) throw Failure(fmt::format("{} and {} have no measurement in common", a, b), 2);
  fmt::print(
      out,
      "{} rows compared: {} slower, {} faster by more than {:.3g} % and the noise, {} wrong; times x {:.3f} (geometric mean)\n",
      matched, number["SLOWER"], number["faster"], 100 * threshold, number["WRONG"], std::exp(logarithms / matched));
  return number["SLOWER"] + number["WRONG"] > 0 ? 1 : 0;
}

int compare_main(int argc, const char* const* argv) {
  const CompareFlags flags = read_compare_flags(argc, argv);
  return compare(flags.files[0], flags.files[1], parse_fraction("--threshold", flags.threshold), stdout);
}

}  // namespace tnt::bench
