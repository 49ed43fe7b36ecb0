#include "benchmarks/parsing.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

namespace tnt::bench {
namespace {

template <typename T>
struct Word {
  const char* text;
  T value;
};

// The first name of a type is displayed; the others are short forms and names from nccl-tests.
constexpr Word<tnt_dtype_t> dtype_words[] = {
    {"float32", TNT_FLOAT32}, {"f32", TNT_FLOAT32},       {"float", TNT_FLOAT32},   {"float64", TNT_FLOAT64},
    {"f64", TNT_FLOAT64},     {"double", TNT_FLOAT64},    {"float16", TNT_FLOAT16}, {"f16", TNT_FLOAT16},
    {"half", TNT_FLOAT16},    {"bfloat16", TNT_BFLOAT16}, {"bf16", TNT_BFLOAT16},   {"int8", TNT_INT8},
    {"i8", TNT_INT8},         {"char", TNT_INT8},         {"uint8", TNT_UINT8},     {"u8", TNT_UINT8},
    {"int32", TNT_INT32},     {"i32", TNT_INT32},         {"int", TNT_INT32},       {"int64", TNT_INT64},
    {"i64", TNT_INT64},       {"uint32", TNT_UINT32},     {"u32", TNT_UINT32},      {"uint64", TNT_UINT64},
    {"u64", TNT_UINT64},
};
constexpr Word<tnt_op_t> op_words[] = {{"sum", TNT_SUM},   {"avg", TNT_AVG},   {"min", TNT_MIN},  {"max", TNT_MAX},
                                       {"prod", TNT_PROD}, {"land", TNT_LAND}, {"lor", TNT_LOR},  {"lxor", TNT_LXOR},
                                       {"band", TNT_BAND}, {"bor", TNT_BOR},   {"bxor", TNT_BXOR}};
constexpr std::array collectives{Collective::all_reduce,       Collective::reduce_scatter, Collective::all_gather,
                                 Collective::broadcast,        Collective::all_to_all,     Collective::reduce,
                                 Collective::gather,           Collective::scatter,        Collective::all_gather_v,
                                 Collective::reduce_scatter_v, Collective::all_to_all_v,   Collective::sendrecv,
                                 Collective::barrier,          Collective::bucket,         Collective::overlap};

// A comma-separated list of names, or "all"; every value once.
template <typename T, std::size_t n>
std::vector<T> parse_list(std::string_view flag, const std::string& text, const Word<T> (&words)[n], std::string_view known) {
  std::vector<T> values;
  const auto add = [&values](T value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  if (text == "all") {
    for (const auto& word : words) add(word.value);
    return values;
  }
  for (const std::string& part : split(text)) {
    const auto word = std::find_if(std::begin(words), std::end(words), [&part](const auto& w) { return w.text == part; });
    if (word == std::end(words)) refuse(flag, text, fmt::format("'{}' is none of {}, all", part, known));
    add(word->value);
  }
  return values;
}

double parse_real(std::string_view flag, std::string_view whole, std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) refuse(flag, whole, what);
  return value;
}

}  // namespace

void refuse(std::string_view flag, std::string_view value, std::string_view what) {
  throw Failure(fmt::format("{} {}: {}", flag, value.empty() ? "''" : value, what), 2);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::uint64_t parse_whole(std::string_view flag, const std::string& text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    refuse(flag, text, fmt::format("not a whole number from {} to {}", least, most));
  }
  return value;
}

double parse_positive(std::string_view flag, const std::string& text) {
  constexpr std::string_view what = "not a number above 0";
  const double value = parse_real(flag, text, text, what);
  if (value <= 0) refuse(flag, text, what);
  return value;
}

double parse_fraction(std::string_view flag, const std::string& text) {
  constexpr std::string_view what = "not a share between 0 and 100 %, like 2% or 0.02";
  std::string_view number = text;
  const bool percent = number.ends_with('%');
  if (percent) number.remove_suffix(1);
  const double value = parse_real(flag, text, number, what) / (percent ? 100.0 : 1.0);
  if (value <= 0 || value >= 1) refuse(flag, text, what);
  return value;
}

Collective parse_collective(const std::string& text) {
  const auto plain = [](std::string word) {
    std::erase_if(word, [](char c) { return c == '_' || c == '-'; });
    return word;
  };
  std::vector<std::string> names;
  for (const Collective collective : collectives) {
    if (plain(text) == plain(name(collective))) return collective;
    names.emplace_back(name(collective));
  }
  throw Failure(fmt::format("{}: not a collective ({}), nor compare, plot or tune", text, fmt::join(names, ", ")), 2);
}

std::vector<tnt_dtype_t> parse_dtypes(std::string_view flag, const std::string& text) {
  return parse_list(flag, text, dtype_words, "float32, float64, float16, bfloat16, int8, uint8, int32, int64, uint32, uint64");
}

std::vector<tnt_op_t> parse_ops(std::string_view flag, const std::string& text) {
  return parse_list(flag, text, op_words, "sum, avg, min, max, prod, land, lor, lxor, band, bor, bxor");
}

bool is_op(std::string_view word) {
  return std::any_of(std::begin(op_words), std::end(op_words), [word](const auto& w) { return w.text == word; });
}

std::vector<std::string> parse_backends(std::string_view flag, const std::string& text) {
  static const std::vector<std::string> known{"shm", "mpi", "mpi:native", "mpi:auto", "hierarchical", "nccl", "simulated"};
  std::vector<std::string> backends;
  for (const std::string& backend : split(text)) {
    if (std::find(known.begin(), known.end(), backend) == known.end()) {
      refuse(flag, text, fmt::format("'{}' is none of {}", backend, fmt::join(known, ", ")));
    }
    if (std::find(backends.begin(), backends.end(), backend) == backends.end()) backends.push_back(backend);
  }
  return backends;
}

void check_file_name(std::string_view flag, const std::string& text) {
  const std::filesystem::path path(text);
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) refuse(flag, text, "not the name of a file");
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), ignored)) {
    refuse(flag, text, fmt::format("there is no directory {}", path.parent_path().string()));
  }
}

std::size_t parse_choice(std::string_view flag, const std::string& text, const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) refuse(flag, text, fmt::format("none of {}", fmt::join(choices, ", ")));
  return static_cast<std::size_t>(found - choices.begin());
}

}  // namespace tnt::bench
