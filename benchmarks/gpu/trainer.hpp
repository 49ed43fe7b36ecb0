// Shared by all cases: the output, and a trainer's rank: its place in the job, its GPU and stream, and the gradients of a model
// with their reducer.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "benchmarks/gpu/memory.hpp"
#include "benchmarks/models.hpp"
#include "tarantella/tarantella.h"

namespace tnt::bench {

// JSON Lines on standard output, from rank 0; and the check of C API calls.
void print_line(const nlohmann::ordered_json& line);

// The properties of the device: {"case": "machine", ...}
[[nodiscard]] nlohmann::ordered_json describe_device(int device);

void check_call(tnt_status_t status, const char* call);  // throws Failure with the library's message

struct Trainer {
  tnt_comm_t comm = nullptr;
  int rank = 0;
  int ranks = 1;
  int device = 0;
  cudaStream_t stream = nullptr;
};

class Gradients {
 public:
  // Collective. Uses the environment (TNT_FUSION_THRESHOLD, TNT_GRADIENT_DTYPE).
  Gradients(const Trainer& trainer, const Model& model);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  ~Gradients() { tnt_reducer_destroy(reducer_); }

  [[nodiscard]] std::size_t size() const noexcept { return counts_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t bytes_of(std::size_t tensor) const { return counts_[tensor] * sizeof(float); }
  [[nodiscard]] std::size_t buckets() const;
  // Whether marking this tensor ready completes its bucket.
  [[nodiscard]] std::vector<bool> last_of_buckets() const;

  void ready(std::size_t tensor) const;
  void finish() const;

 private:
  const Trainer& trainer_;
  std::vector<std::size_t> counts_;
  std::vector<Memory> memory_;
  tnt_reducer_t reducer_ = nullptr;
};

}  // namespace tnt::bench

#define TNT_CHECK(call) ::tnt::bench::check_call(call, #call)
