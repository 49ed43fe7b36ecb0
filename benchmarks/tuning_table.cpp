#include "benchmarks/tuning_table.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

using Json = nlohmann::ordered_json;  // people read the file, too

constexpr int schema = 2;

struct Field {
  const char* key;
  std::size_t Tuning::*value;
};
constexpr std::array<Field, 4> fields{{{"ll_bytes", &Tuning::ll_bytes},
                                       {"one_shot_bytes", &Tuning::one_shot_bytes},
                                       {"streaming_bytes", &Tuning::streaming_bytes},
                                       {"chunk_bytes", &Tuning::chunk_bytes}}};

Json write_one(const Tuning& tuning) {
  Json json;
  for (const Field& field : fields) json[field.key] = tuning.*field.value;
  return json;
}

Tuning read_one(const Json& json) {
  Tuning tuning;
  for (const Field& field : fields) tuning.*field.value = json.at(field.key).get<std::size_t>();
  const Tuning limit{Tuning::max_ll, Tuning::max_one_shot, Tuning::never_streaming, Tuning{}.chunk_bytes};
  const bool fits =
      std::all_of(fields.begin(), fields.end(), [&](const Field& field) { return tuning.*field.value <= limit.*field.value; });
  if (!fits || tuning.chunk_bytes < Tuning::min_chunk) throw Failure("a number is out of range");
  return tuning;
}

}  // namespace

TuningTable::TuningTable(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema") != schema) throw Failure("it is of another version");
    default_ = read_one(json.at("default"));
    for (const Json& entry : json.at("entries")) set(entry.at("ranks").get<int>(), read_one(entry));
  } catch (const nlohmann::json::exception& error) {
    throw Failure(error.what());
  }
}

std::string TuningTable::text() const {
  const std::string about = fmt::format("written by tnt-bench tune, Tarantella {}", tnt_version());
  Json json{{"schema", schema}, {"about", about}, {"default", write_one(default_)}, {"entries", Json::array()}};
  for (const auto& [ranks, tuning] : entries_) {
    Json entry{{"ranks", ranks}};
    entry.update(write_one(tuning));
    json["entries"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace tnt::bench
