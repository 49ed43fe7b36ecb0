#include "benchmarks/gradients.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tnt::bench {

std::vector<Model> models_of(const Options& options) {
  if (!options.model.empty()) return {find_model(options.model)};
  std::vector<Model> models;
  for (const Size& size : options.sizes) {
    models.push_back(equal_tensors(options.tensors, size.bytes, fmt::format("{} tensors", options.tensors)));
  }
  return models;
}

Gradients::Gradients(const Model& model, const Options& options, const Team& team)
    : ranks_(team.ranks()), wire_(options.wire_dtype), determinism_(options.determinism) {
  for (const ModelTensor& tensor : model.tensors) {
    tensors_.push_back({tensor.name.c_str(), tensor.count, TNT_FLOAT32});
    bytes_ += tensor.count * sizeof(float);
    auto& values = values_.emplace_back(std::make_unique_for_overwrite<float[]>(tensor.count));
    std::fill_n(values.get(), tensor.count, 1e-3F * static_cast<float>(team.rank() + 1));
  }
  tnt_reducer_options_t wishes = TNT_REDUCER_OPTIONS_INITIALIZER;
  wishes.fusion_threshold = options.fusion_threshold;
  wishes.wire_dtype = wire_ == TNT_FLOAT32 ? TNT_WIRE_OWN : wire_;
  wishes.determinism = determinism_;
  check(tnt_reducer_create(team.comm(), tensors_.data(), tensors_.size(), &wishes, &reducer_));
  std::size_t n = 0;
  check(tnt_reducer_bucket_count(reducer_, &n));
  for (std::size_t i = 0; i < n; ++i) {
    tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
    check(tnt_reducer_bucket(reducer_, i, &bucket));
    buckets_.emplace_back(bucket.tensors, bucket.tensors + bucket.n_tensors);
  }
}

Gradients::~Gradients() { tnt_reducer_destroy(reducer_); }

tnt_reducer_stats_t Gradients::stats() const {
  tnt_reducer_stats_t stats = TNT_REDUCER_STATS_INITIALIZER;
  check(tnt_reducer_stats(reducer_, &stats));
  return stats;
}

// computes the mean, so that the numbers stay in range over many steps in place
void Gradients::ready(std::size_t tensor) const {
  check(tnt_reducer_ready(reducer_, tensor, data(tensor), data(tensor), 1.0 / ranks_, nullptr));
}

void Gradients::finish() const { check(tnt_reducer_finish(reducer_, nullptr)); }

void Gradients::step() const {
  for (std::size_t tensor = size(); tensor-- > 0;) ready(tensor);
  finish();
}

Row Gradients::row(Collective collective, const Model& model, const std::string& backend, const Times& times) const {
  std::string label = model.name;
  if (wire_ != TNT_FLOAT32) label += fmt::format(" as {}", name(wire_));
  if (determinism_ == TNT_DETERMINISM_RANKS) label += " in a tree";
  return {.collective = collective,
          .backend = backend,
          .ranks = ranks_,
          .bytes = bytes_,
          .count = bytes_ / sizeof(float),
          .label = std::move(label),
          .in_place = true,
          .times = times};
}

}  // namespace tnt::bench
