#include "base/setting_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/dtype.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max() / 2;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::optional<int> whole_number(const char* value) {
  int result = 0;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, result);
  return error == std::errc() && stop == end ? std::optional(result) : std::nullopt;
}

// The words of an enumeration, in its order.
using Words = std::span<const char* const>;
constexpr std::array transports{"auto", "shm", "mpi", "mpi:native", "mpi:auto", "tcp", "hierarchical"};
constexpr std::array device_transports{"nccl", "staged", "hierarchical"};
constexpr std::array overlaps{"auto", "on", "off"};
constexpr std::array levels{"DEBUG", "INFO", "WARNING", "ERROR"};

template <typename Enum>
const char* word(Words words, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < words.size() ? words[index] : "unknown";
}

template <typename Enum>
Enum parse_word(Words words, const char* name, const char* value) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (lower(words[i]) == lower(value)) return static_cast<Enum>(i);
  }
  const auto [others, last] = std::pair(words.first(words.size() - 1), words.back());
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected {} or {}", name, value, fmt::join(others, ", "), last);
}

struct OnAllRanks {
  std::string_view word;
  bool Settings::*wanted;
};
constexpr std::array on_all_ranks{
    OnAllRanks{"output", &Settings::output_on_all_ranks}, OnAllRanks{"log", &Settings::log_on_all_ranks},
    OnAllRanks{"tensorboard", &Settings::tensorboard_on_all_ranks}, OnAllRanks{"mlflow", &Settings::mlflow_on_all_ranks}};

}  // namespace

const char* transport_name(TransportChoice choice) noexcept { return word(transports, choice); }
const char* device_transport_name(DeviceTransport choice) noexcept { return word(device_transports, choice); }
const char* level_name(LogLevel level) noexcept { return word(levels, level); }

int parse_int(const char* name, const char* value, int low) {
  const std::optional<int> number = whole_number(value);
  if (!number || *number < low) fail(TNT_INVALID_ARGUMENT, "{}={}: expected a whole number of at least {}", name, value, low);
  return *number;
}

std::optional<int> parse_gpus(const char* name, const char* value) {
  if (*value == '\0') return std::nullopt;
  const std::optional<int> number = whole_number(value);
  if (!number) fail(TNT_INVALID_ARGUMENT, "{}={}: expected a whole number", name, value);
  return number;
}

std::optional<int> parse_shards(const char* name, const char* value) {
  if (*value == '\0') return std::nullopt;
  const std::optional<int> number = whole_number(value);
  if (!number || *number < 1 || !std::has_single_bit(static_cast<unsigned>(*number)))
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected a power of two, such as 8", name, value);
  return number;
}

double parse_seconds(const char* name, const char* value) {
  double result = 0;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, result);
  if (error != std::errc() || stop != end || !(result > 0) || !(result <= 1e9)) {
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected a number of seconds above 0", name, value);
  }
  return result;
}

// "32" means kilobytes, as in the predecessor; "32K", "4M" and "1G" have units; "inf" means one bucket for each dtype.
void parse_threshold(Settings& settings, const char* name, const char* value) {
  const std::string text = lower(value);
  settings.autotune = text == "autotune";
  if (settings.autotune) return;
  if (text == "inf") {
    settings.fusion_threshold = unlimited;
    return;
  }
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  double factor = 0;
  if (unit.empty() || unit == "k") factor = 1024.0;
  if (unit == "m") factor = 1024.0 * 1024.0;
  if (unit == "g") factor = 1024.0 * 1024.0 * 1024.0;
  if (error != std::errc() || factor == 0 || !(number >= 0) || !(number * factor < 1e18)) {
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected kilobytes, a number with K, M or G, inf or autotune", name, value);
  }
  settings.fusion_threshold = static_cast<std::size_t>(number * factor);
}

std::optional<tnt_dtype_t> parse_wire_dtype(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "none") return std::nullopt;
  if (text == "float16") return TNT_FLOAT16;
  if (text == "bfloat16") return TNT_BFLOAT16;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected bfloat16, float16 or none", name, value);
}

void parse_on_all_ranks(Settings& settings, const char* name, const char* value) {
  std::istringstream words(lower(value));
  for (std::string word; std::getline(words, word, ',');) {
    const auto* const found =
        std::find_if(on_all_ranks.begin(), on_all_ranks.end(), [&](const auto& one) { return one.word == word; });
    if (found == on_all_ranks.end()) {
      fail(TNT_INVALID_ARGUMENT, "{}={}: expected a list of output, log, tensorboard and mlflow, such as output,log", name,
           value);
    }
    settings.*found->wanted = true;
  }
}

LogLevel parse_level(const char* name, const char* value) {
  return lower(value) == "warn" ? LogLevel::warning : parse_word<LogLevel>(levels, name, value);
}

TransportChoice parse_transport(const char* name, const char* value) {
  return parse_word<TransportChoice>(transports, name, value);
}

DeviceTransport parse_device_transport(const char* name, const char* value) {
  return parse_word<DeviceTransport>(device_transports, name, value);
}

Overlap parse_overlap(const char* name, const char* value) { return parse_word<Overlap>(overlaps, name, value); }

std::string gradient_dtype_text(const Settings& settings) {
  return settings.gradient_dtype ? dtype_name(*settings.gradient_dtype) : "none";
}

std::string number_or_nothing(const std::optional<int>& number) { return number ? fmt::format("{}", *number) : ""; }

std::string threshold_text(const Settings& settings) {
  if (settings.autotune) return "autotune";
  if (!settings.fusion_threshold) return "";
  return *settings.fusion_threshold == unlimited ? "inf" : fmt::format("{}", *settings.fusion_threshold);
}

std::string on_all_ranks_text(const Settings& settings) {
  std::vector<std::string_view> words;
  for (const auto& [word, wanted] : on_all_ranks) {
    if (settings.*wanted) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, ","));
}

}  // namespace tnt
