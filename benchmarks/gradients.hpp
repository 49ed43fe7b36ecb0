// A model's gradients and their reducer, as in a trainer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/models.hpp"
#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// The models of --model or of the sizes, in order.
[[nodiscard]] std::vector<Model> models_of(const Options& options);

class Gradients {
 public:
  // Collective.
  Gradients(const Model& model, const Options& options, const Team& team);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  ~Gradients();

  [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }
  [[nodiscard]] std::size_t count(std::size_t tensor) const { return tensors_[tensor].count; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] tnt_dtype_t wire() const noexcept { return wire_; }
  [[nodiscard]] float* data(std::size_t tensor) const { return values_[tensor].get(); }
  [[nodiscard]] const std::vector<std::vector<std::size_t>>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] tnt_reducer_stats_t stats() const;

  void ready(std::size_t tensor) const;  // in place
  void finish() const;
  void step() const;  // marks all gradients ready at once

  // The part that all rows about these gradients have in common.
  [[nodiscard]] Row row(Collective collective, const Model& model, const std::string& backend, const Times& times) const;

 private:
  std::vector<tnt_tensor_t> tensors_;
  std::vector<std::unique_ptr<float[]>> values_;
  std::vector<std::vector<std::size_t>> buckets_;
  std::size_t bytes_ = 0;
  int ranks_;
  tnt_dtype_t wire_;
  tnt_determinism_t determinism_;
  tnt_reducer_t reducer_ = nullptr;
};

}  // namespace tnt::bench
