#include "base/settings.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/error.hpp"
#include "base/host_cache.hpp"

namespace tnt {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

int parse_int(const char* name, const char* value, int low) {
  int result = 0;
  const char* end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, result);
  if (error != std::errc() || stop != end || result < low) {
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected a whole number of at least {}", name, value, low);
  }
  return result;
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
std::size_t parse_kilobytes(const char* name, const char* value) {
  const std::string text = lower(value);
  constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max() / 2;
  if (text == "inf") return unlimited;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  double factor = 0;
  if (unit.empty() || unit == "k") factor = 1024.0;
  if (unit == "m") factor = 1024.0 * 1024.0;
  if (unit == "g") factor = 1024.0 * 1024.0 * 1024.0;
  if (error != std::errc() || factor == 0 || !(number >= 0) || !(number * factor < 1e18)) {
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected kilobytes, or a number with K, M or G, or inf", name, value);
  }
  return static_cast<std::size_t>(number * factor);
}

std::optional<tnt_dtype_t> parse_wire_dtype(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "none") return std::nullopt;
  if (text == "float16") return TNT_FLOAT16;
  if (text == "bfloat16") return TNT_BFLOAT16;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected bfloat16, float16 or none", name, value);
}

bool parse_bool(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no" || text.empty()) return false;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected true or false", name, value);
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
       {TransportChoice::automatic, TransportChoice::shm, TransportChoice::mpi, TransportChoice::hierarchical}) {
    if (text == transport_name(choice)) return choice;
  }
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected auto, shm, mpi or hierarchical", name, value);
}

DeviceTransport parse_device_transport(const char* name, const char* value) {
  const std::string text = lower(value);
  if (text == "nccl") return DeviceTransport::nccl;
  if (text == "staged") return DeviceTransport::staged;
  if (text == "hierarchical") return DeviceTransport::hierarchical;
  fail(TNT_INVALID_ARGUMENT, "{}={}: expected nccl, staged or hierarchical", name, value);
}

Overlap parse_overlap(const char* name, const char* value) {
  if (lower(value) == "auto") return Overlap::automatic;
  try {
    return parse_bool(name, value) ? Overlap::on : Overlap::off;
  } catch (const Error&) {
    fail(TNT_INVALID_ARGUMENT, "{}={}: expected auto, on or off", name, value);
  }
}

void check_place(const Settings& settings) {
  if (settings.rank >= settings.ranks) {
    fail(TNT_INVALID_ARGUMENT, "TNT_RANK={} is not below TNT_SIZE={}", settings.rank, settings.ranks);
  }
  if (settings.ranks > 1 && (settings.rendezvous.empty() || settings.token.empty())) {
    fail(TNT_INVALID_ARGUMENT,
         "TNT_SIZE={} without TNT_RENDEZVOUS and TNT_TOKEN: start the ranks with `tarantella -n {} -- script.py`",
         settings.ranks, settings.ranks);
  }
}

}  // namespace

const char* transport_name(TransportChoice choice) noexcept {
  switch (choice) {
    case TransportChoice::automatic: return "auto";
    case TransportChoice::shm: return "shm";
    case TransportChoice::mpi: return "mpi";
    case TransportChoice::hierarchical: return "hierarchical";
  }
  return "unknown";
}

Settings read_settings(const Environment& environment) {
  Settings settings;
  const auto with = [&](const char* name, auto&& use) {
    if (const char* value = environment(name); value != nullptr) use(name, value);
  };
  with("TNT_RANK", [&](auto name, auto value) { settings.rank = parse_int(name, value, 0); });
  with("TNT_SIZE", [&](auto name, auto value) { settings.ranks = parse_int(name, value, 1); });
  with("TNT_RENDEZVOUS", [&](auto, auto value) { settings.rendezvous = value; });
  with("TNT_TOKEN", [&](auto, auto value) { settings.token = value; });
  with("TNT_TIMEOUT", [&](auto name, auto value) { settings.timeout = parse_seconds(name, value); });
  with("TNT_FUSION_THRESHOLD", [&](auto name, auto value) { settings.fusion_threshold = parse_kilobytes(name, value); });
  with("TNT_GRADIENT_DTYPE", [&](auto name, auto value) { settings.gradient_dtype = parse_wire_dtype(name, value); });
  with("TNT_OVERLAP", [&](auto name, auto value) { settings.overlap = parse_overlap(name, value); });
  with("TNT_TIMELINE", [&](auto, auto value) { settings.timeline = value; });
  with("TNT_LOG_LEVEL", [&](auto name, auto value) { settings.log_level = parse_level(name, value); });
  with("TNT_LOG_ON_ALL_DEVICES", [&](auto name, auto value) { settings.log_on_all_devices = parse_bool(name, value); });
  with("TNT_TRANSPORT", [&](auto name, auto value) { settings.transport = parse_transport(name, value); });
  with("TNT_DEVICE_TRANSPORT", [&](auto name, auto value) { settings.device_transport = parse_device_transport(name, value); });
  with("TNT_TUNING", [&](auto, auto value) { settings.tuning = value; });
  settings.tuning_cache = host_cache_file(environment, "tuning");
  with("TNT_NCCL_LIBRARY", [&](auto, auto value) { settings.nccl_library = value; });
  with("TNT_NODE", [&](auto, auto value) { settings.node = value; });
  check_place(settings);
  return settings;
}

Settings read_settings() {
  return read_settings([](const char* name) { return std::getenv(name); });
}

}  // namespace tnt
