#include "base/setting_values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>
#include <sstream>
#include <string_view>

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

}  // namespace

const char* transport_name(TransportChoice choice) noexcept {
  switch (choice) {
    case TransportChoice::automatic: return "auto";
    case TransportChoice::shm: return "shm";
    case TransportChoice::mpi: return "mpi";
    case TransportChoice::mpi_native: return "mpi:native";
    case TransportChoice::mpi_auto: return "mpi:auto";
    case TransportChoice::tcp: return "tcp";
    case TransportChoice::hierarchical: return "hierarchical";
  }
  return "unknown";
}

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
    if (word == "output") {
      settings.output_on_all_ranks = true;
    } else if (word == "log") {
      settings.log_on_all_ranks = true;
    } else if (word == "tensorboard") {
      settings.tensorboard_on_all_ranks = true;
    } else if (word == "mlflow") {
      settings.mlflow_on_all_ranks = true;
    } else {
      fail(TNT_INVALID_ARGUMENT, "{}={}: expected a list of output, log, tensorboard and mlflow, such as output,log", name,
           value);
    }
  }
}

LogLevel parse_level(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "warning" || text == "warn") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected DEBUG, INFO, WARNING or ERROR", name, value);
}

TransportChoice parse_transport(const char* name, const char* value) {
  const std::string text = lower(value);
  for (const TransportChoice choice :
       {TransportChoice::automatic, TransportChoice::shm, TransportChoice::mpi, TransportChoice::mpi_native,
        TransportChoice::mpi_auto, TransportChoice::tcp, TransportChoice::hierarchical}) {
    if (text == transport_name(choice)) return choice;
  }
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected auto, shm, mpi, mpi:native, mpi:auto, tcp or hierarchical", name, value);
}

DeviceTransport parse_device_transport(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "nccl") return DeviceTransport::nccl;
  if (text == "staged") return DeviceTransport::staged;
  if (text == "hierarchical") return DeviceTransport::hierarchical;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected nccl, staged or hierarchical", name, value);
}

Overlap parse_overlap(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "auto") return Overlap::automatic;
  if (text == "on") return Overlap::on;
  if (text == "off") return Overlap::off;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected auto, on or off", name, value);
}

const char* level_name(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "DEBUG";
    case LogLevel::info: return "INFO";
    case LogLevel::warning: return "WARNING";
    case LogLevel::error: return "ERROR";
  }
  return "unknown";
}

const char* device_transport_name(DeviceTransport choice) noexcept {
  switch (choice) {
    case DeviceTransport::nccl: return "nccl";
    case DeviceTransport::staged: return "staged";
    case DeviceTransport::hierarchical: return "hierarchical";
  }
  return "unknown";
}

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
  std::string text;
  const auto add = [&](bool wanted, const char* word) {
    if (wanted) text += text.empty() ? word : fmt::format(",{}", word);
  };
  add(settings.output_on_all_ranks, "output");
  add(settings.log_on_all_ranks, "log");
  add(settings.tensorboard_on_all_ranks, "tensorboard");
  add(settings.mlflow_on_all_ranks, "mlflow");
  return text;
}

}  // namespace tnt
