#include "comm/shm/tuning.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <type_traits>
#include <vector>

#include "common/error.hpp"

namespace tnt {
namespace {

using Json = nlohmann::ordered_json;  // ordered for human readers

static_assert(std::is_trivially_copyable_v<TuningTable>);

constexpr int schema = 2;
constexpr std::size_t max_tuned_ranks = 512;

struct Field {
  const char* key;
  std::size_t Tuning::*value;
  std::size_t min;
  std::size_t max;
};
constexpr std::array<Field, 4> fields{{
    {"ll_bytes", &Tuning::ll_bytes, 0, LLBuffer::max_bytes},
    {"one_shot_bytes", &Tuning::one_shot_bytes, 0, Tuning::max_one_shot},
    {"streaming_bytes", &Tuning::streaming_bytes, 0, Tuning::never_streaming},
    {"chunk_bytes", &Tuning::chunk_bytes, Tuning::min_chunk, Slots::slot_bytes},
}};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(TNT_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

std::string shown(const Json& json) {
  constexpr std::size_t max_length = 40;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= max_length ? text : text.substr(0, max_length) + "...";
}

// Printing a value takes stack for each of its levels.
bool refuse_depth(int depth, Json::parse_event_t event, const Json& /*parsed*/) {
  constexpr int max_depth = 16;  // a table has 3
  const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
  if (opens && depth >= max_depth) refuse("the text has more than {} levels of lists and objects", max_depth);
  return true;
}

std::size_t read_whole(const Json& json, const std::string& where, std::size_t min, std::size_t max) {
  if (json.is_number_unsigned()) {
    if (const auto value = json.get<std::uint64_t>(); value >= min && value <= max) return value;
  }
  refuse("{} is {}: expected a whole number from {} to {}", where, shown(json), min, max);
}

void check_keys(const Json& json, const std::string& where, const std::vector<std::string>& known) {
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) refuse("unknown key {}{}", where, shown(key));
  }
}

// Missing keys have their defaults.
Tuning read_one(const Json& json, const std::string& where, bool with_ranks) {
  if (!json.is_object()) refuse("{} is {}: expected an object", where, shown(json));
  std::vector<std::string> known;
  known.reserve(fields.size() + 1);
  for (const Field& field : fields) known.emplace_back(field.key);
  if (with_ranks) known.emplace_back("ranks");
  check_keys(json, where + ".", known);
  Tuning tuning;
  for (const Field& field : fields) {
    if (!json.contains(field.key)) continue;
    tuning.*field.value = read_whole(json[field.key], fmt::format("{}.{}", where, field.key), field.min, field.max);
  }
  return tuning;
}

}  // namespace

const Tuning& TuningTable::of(std::size_t ranks) const noexcept {
  const auto distance = [ranks](const Entry& entry) { return entry.ranks > ranks ? entry.ranks - ranks : ranks - entry.ranks; };
  const Entry* nearest = nullptr;
  for (std::size_t i = 0; i < size_; ++i) {  // in ascending order
    if (nearest == nullptr || distance(entries_[i]) < distance(*nearest)) nearest = &entries_[i];
  }
  return nearest == nullptr ? default_ : nearest->tuning;
}

void TuningTable::set(std::size_t ranks, const Tuning& tuning) {
  Entry* const end = entries_.begin() + size_;
  Entry* const at = std::find_if(entries_.begin(), end, [ranks](const Entry& entry) { return entry.ranks >= ranks; });
  if (at == end || at->ranks != ranks) {
    if (size_ == max_entries) refuse("more than {} numbers of ranks in one tuning table", max_entries);
    std::move_backward(at, end, end + 1);
    ++size_;
  }
  *at = {ranks, tuning};
}

bool TuningTable::operator==(const TuningTable& other) const noexcept {
  return default_ == other.default_ &&
         std::equal(entries_.begin(), entries_.begin() + size_, other.entries_.begin(), other.entries_.begin() + other.size_);
}

TuningTable TuningTable::from_json(const std::string& text) {
  const Json json = Json::parse(text, refuse_depth, false);
  if (json.is_discarded()) refuse("the text is not JSON");
  if (!json.is_object()) refuse("the text is {}: expected an object", shown(json));
  if (!json.contains("schema") || json["schema"] != schema) {
    refuse("schema is {}: this version reads {}", json.contains("schema") ? shown(json["schema"]) : "missing", schema);
  }
  check_keys(json, "", {"schema", "about", "default", "entries"});
  TuningTable table;
  if (json.contains("default")) table.set_default(read_one(json["default"], "default", false));
  if (!json.contains("entries")) return table;
  if (!json["entries"].is_array()) refuse("entries is {}: expected a list", shown(json["entries"]));
  std::vector<std::size_t> seen;
  for (const Json& entry : json["entries"]) {
    const std::string where = fmt::format("entries[{}]", seen.size());
    const Tuning tuning = read_one(entry, where, true);
    if (!entry.contains("ranks")) refuse("{}.ranks is missing", where);
    const std::size_t ranks = read_whole(entry["ranks"], where + ".ranks", 2, max_tuned_ranks);
    if (std::find(seen.begin(), seen.end(), ranks) != seen.end()) refuse("{}.ranks is {} for the second time", where, ranks);
    seen.push_back(ranks);
    table.set(ranks, tuning);
  }
  return table;
}

TuningTable read_tuning_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) refuse("tuning file {} cannot be read; make one with `tnt-bench tune -o FILE`", path);
  try {
    return TuningTable::from_json(text.str());
  } catch (const Error& error) {
    refuse("tuning file {}: {}; make a new one with `tnt-bench tune -o FILE`", path, error.what());
  }
}

}  // namespace tnt
