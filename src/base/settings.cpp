#include "base/settings.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/job_token.hpp"
#include "base/setting_values.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

struct Variable {
  std::string_view name;
  void (*parse)(Settings&, const char* name, const char* value);
  std::string (*text)(const Settings&);  // the value in one spelling; nullptr: it has one only, and no default
};

using Name = const char*;
using Text = const char*;
using S = Settings;
void nothing(S& /*unused*/, Name /*unused*/, Text /*unused*/) {}

// The place of this process in the job.
constexpr auto place_variables = std::to_array<Variable>({
    {"TNT_RANK", [](S& s, Name n, Text t) { s.rank = parse_int(n, t, 0); }, nullptr},
    {"TNT_SIZE", [](S& s, Name n, Text t) { s.ranks = parse_int(n, t, 1); }, nullptr},
    {"TNT_RENDEZVOUS", [](S& s, Name, Text t) { s.rendezvous = t; }, nullptr},
    {"TNT_TOKEN", [](S& s, Name, Text t) { s.token = t; }, nullptr},
    {"TNT_TOKEN_FILE", nothing, nullptr},  // read_settings reads the file
});

constexpr auto variables = std::to_array<Variable>({
    // users'
    {"TNT_TIMEOUT", [](S& s, Name n, Text t) { s.timeout = parse_seconds(n, t); },
     [](const S& s) { return fmt::format("{}", s.timeout); }},
    {"TNT_FUSION_THRESHOLD", parse_threshold, threshold_text},
    {"TNT_GRADIENT_DTYPE", [](S& s, Name n, Text t) { s.gradient_dtype = parse_wire_dtype(n, t); }, gradient_dtype_text},
    {"TNT_REPRODUCIBLE", [](S& s, Name n, Text t) { s.shards = parse_shards(n, t); },
     [](const S& s) { return number_or_nothing(s.shards); }},
    {"TNT_TIMELINE", [](S& s, Name, Text t) { s.timeline = t; }, nullptr},
    {"TNT_FINGERPRINT", [](S& s, Name, Text t) { s.fingerprint = t; }, nullptr},
    {"TNT_LOG_LEVEL", [](S& s, Name n, Text t) { s.log_level = parse_level(n, t); },
     [](const S& s) { return std::string(level_name(s.log_level)); }},
    {"TNT_ON_ALL_RANKS", parse_on_all_ranks, on_all_ranks_text},
    {"TNT_TRANSPORT", [](S& s, Name n, Text t) { s.transport = parse_transport(n, t); },
     [](const S& s) { return std::string(transport_name(s.transport)); }},
    {"TNT_DEVICE_TRANSPORT", [](S& s, Name n, Text t) { s.device_transport = parse_device_transport(n, t); },
     [](const S& s) { return std::string(device_transport_name(s.device_transport)); }},
    {"TNT_NCCL_LIBRARY", [](S& s, Name, Text t) { s.nccl_library = t; }, nullptr},
    {"TNT_GPUS_PER_NODE", [](S& s, Name n, Text t) { s.gpus_per_node = parse_gpus(n, t); },
     [](const S& s) { return number_or_nothing(s.gpus_per_node); }},
    // what Python alone reads (python/tarantella/settings.py): models that do not say, and scripts for Horovod
    {"TNT_SHARD_OPTIMIZER", nothing, nullptr},
    {"TNT_TRIALS", nothing, nullptr},
    {"TNT_HOROVOD", nothing, nullptr},
    {"TNT_HOROVOD_PICKLE", nothing, nullptr},
    // from the launcher, for scripts: how often the job was started again
    {"TNT_RESTART", nothing, nullptr},
    // between the launcher and ranks: python/tarantella/variables.py
    {"TNT_LOCAL_RANK", nothing, nullptr},
    {"TNT_LOCAL_SIZE", nothing, nullptr},
    {"TNT_INTERNAL_REPORT_FD", nothing, nullptr},
    {"TNT_INTERNAL_FLIGHT_RECORD", [](S& s, Name, Text t) { s.flight_record = t; }, nullptr},
    {"TNT_INTERNAL_LAUNCHER", nothing, nullptr},
    {"TNT_INTERNAL_LAUNCHER_ADDED", nothing, nullptr},
    {"TNT_INTERNAL_JOB", nothing, nullptr},
    {"TNT_INTERNAL_JOINED", nothing, nullptr},
    {"TNT_INTERNAL_COMMITS", nothing, nullptr},
    {"TNT_INTERNAL_ELASTIC", nothing, nullptr},
    {"TNT_INTERNAL_NEWCOMER", nothing, nullptr},
    {"TNT_INTERNAL_THREADS_CHOSEN", nothing, nullptr},
    {"TNT_INTERNAL_CORES", nothing, nullptr},
    // tests' and benchmarks'
    {"TNT_INTERNAL_OVERLAP", [](S& s, Name n, Text t) { s.overlap = parse_overlap(n, t); }, nullptr},
    {"TNT_INTERNAL_NODE", [](S& s, Name, Text t) { s.node = t; }, nullptr},
    {"TNT_INTERNAL_DOMAIN", [](S& s, Name n, Text t) { s.domain = parse_int(n, t, 1); }, nullptr},
    {"TNT_INTERNAL_TUNING", [](S& s, Name, Text t) { s.tuning = t; }, nullptr},
    {"TNT_INTERNAL_BENCH_PEERS", nothing, nullptr},  // tnt-bench: the folder with the programs it is compared to
});

struct Renamed {
  std::string_view before;
  std::string_view now;
};
constexpr auto renamed = std::to_array<Renamed>({
    {"TNT_AUTOTUNE", "TNT_FUSION_THRESHOLD=autotune"},
    {"TNT_LOG_ON_ALL_DEVICES", "TNT_ON_ALL_RANKS=log"},
    {"TNT_OUTPUT_ON_ALL_DEVICES", "TNT_ON_ALL_RANKS=output"},
    {"TNT_TENSORBOARD_ON_ALL_DEVICES", "TNT_ON_ALL_RANKS=tensorboard"},
});

// How many letters have to be added, taken away or replaced (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"TNT_INTERNAL_", "TNT_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

std::string_view nearest_name(std::string_view unknown) {
  for (const auto& [before, now] : renamed) {
    if (unknown == before) return now;
  }
  // a variable of the launcher's is meant only if the rest of the name is right
  const auto far = [&](const Variable& known) -> std::size_t {
    if (without_prefix(unknown) == without_prefix(known.name)) return 0;
    if (known.name.starts_with("TNT_INTERNAL_")) return known.name.size() + unknown.size();
    return known.name.starts_with(unknown) ? 1 : distance(unknown, known.name);
  };
  const auto* const place = std::ranges::min_element(place_variables, {}, far);
  const auto* const other = std::ranges::min_element(variables, {}, far);
  return far(*place) < far(*other) ? place->name : other->name;
}

const Variable& find_variable(std::string_view name) {
  const auto find = [&](const auto& table) -> const Variable* {
    const auto found = std::ranges::find(table, name, &Variable::name);
    return found == table.end() ? nullptr : &*found;
  };
  if (const Variable* found = find(variables)) return *found;
  if (const Variable* found = find(place_variables)) return *found;
  fail(TNT_INVALID_ARGUMENT, "{} is not a setting of Tarantella: use {} (docs/settings.md has them all)", name,
       nearest_name(name));
}

void check_place(const Settings& settings) {
  if (settings.rank >= settings.ranks) {
    fail(TNT_INVALID_ARGUMENT, "TNT_RANK={} is not below TNT_SIZE={}", settings.rank, settings.ranks);
  }
  if (settings.ranks > 1 && (settings.rendezvous.empty() || settings.token.empty())) {
    fail(TNT_INVALID_ARGUMENT,
         "TNT_SIZE={} without TNT_RENDEZVOUS and TNT_TOKEN: start the ranks with `tarantella -n {} -- script.py`, or "
         "`tnt-run -n {} -- PROGRAM`",
         settings.ranks, settings.ranks, settings.ranks);
  }
}

}  // namespace

Settings read_settings(const Environment& environment, Place place) {
  Settings settings;
  const auto read = [&](const auto& table) {
    for (const Variable& variable : table) {
      if (const char* value = environment(variable.name.data()); value != nullptr)
        variable.parse(settings, variable.name.data(), value);
    }
  };
  if (place == Place::from_environment) read(place_variables);
  const char* const token_file = environment("TNT_TOKEN_FILE");
  const bool needs_token = place == Place::from_environment && settings.ranks > 1 && settings.token.empty();
  if (needs_token && token_file != nullptr && *token_file != '\0') settings.token = read_token(token_file);
  read(variables);
  settings.tuning_cache = host_cache_file(environment, "tuning");
  check_place(settings);
  if (settings.ranks > 1 && environment("TNT_RANK") == nullptr) {
    fail(TNT_INVALID_ARGUMENT, "TNT_SIZE={} without TNT_RANK: give each rank its own, from 0", settings.ranks);
  }
  return settings;
}

Settings read_settings(Place place) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    if (name.starts_with("TNT_")) (void)find_variable(name);
  }
  return read_settings([](const char* name) { return std::getenv(name); }, place);
}

bool is_launched_as(const Settings& settings) {
  const auto is = [](const char* name, const std::string& value) {
    const char* const text = std::getenv(name);
    return text != nullptr && text == value;
  };
  return is("TNT_RANK", std::to_string(settings.rank)) && is("TNT_RENDEZVOUS", settings.rendezvous);
}

std::string canonical_setting(const char* name, const char* value) {
  const Variable& variable = find_variable(name);
  Settings settings;
  if (value != nullptr) variable.parse(settings, name, value);
  if (variable.text != nullptr) return variable.text(settings);
  return value == nullptr ? "" : value;
}

std::string host_cache_file(const Environment& environment, std::string_view subject) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') return "";
  std::replace(host.begin(), host.end(), '/', '_');  // part of a file name
  // the XDG specification says to ignore relative paths
  const char* cache = environment("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/tarantella/{}-{}.json", cache, subject, host.data());
  const char* home = environment("HOME");
  if (home != nullptr && home[0] == '/') return fmt::format("{}/.cache/tarantella/{}-{}.json", home, subject, host.data());
  return "";
}

}  // namespace tnt
