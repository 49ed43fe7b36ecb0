#include "benchmarks/models.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

Model read_model(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  Model model{.name = json.at("name"),
              .source = json.at("source"),
              .published = json.at("published"),
              .published_millions = json.at("published_millions"),
              .parameters = json.at("parameters"),
              .tensors = {}};
  for (const auto& entry : json.at("tensors")) {
    ModelTensor tensor{.name = entry.at(0), .shape = entry.at(1), .count = 0};
    tensor.count = std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::size_t{1}, std::multiplies<>());
    model.tensors.push_back(std::move(tensor));
  }
  return model;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelText& text : model_texts()) names.emplace_back(text.name);
  return names;
}

const Model& find_model(std::string_view name, std::string_view flag) {
  static std::mutex mutex;
  static std::map<std::string, Model, std::less<>> models;  // models that were asked for
  const std::lock_guard lock(mutex);
  if (const auto known = models.find(name); known != models.end()) return known->second;
  for (const ModelText& text : model_texts()) {
    if (text.name == name) return models.emplace(name, read_model(text.json)).first->second;
  }
  throw Failure(fmt::format("{}{}: no such model; there are {}", flag, name, fmt::join(model_names(), ", ")), 2);
}

Model equal_tensors(std::size_t tensors, std::size_t bytes, std::string name) {
  Model model;
  model.name = std::move(name);
  model.parameters = bytes / sizeof(float);
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::size_t count = model.parameters / tensors;
    model.tensors.push_back({fmt::format("tensor_{}", i), {count}, count});
  }
  return model;
}

}  // namespace tnt::bench
