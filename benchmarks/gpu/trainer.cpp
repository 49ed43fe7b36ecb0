#include "benchmarks/gpu/trainer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "benchmarks/gpu/memory.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

void print_line(const nlohmann::ordered_json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

nlohmann::ordered_json describe_device(int device) {
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  TNT_CUDA(cudaGetDeviceProperties(&properties, device));
  TNT_CUDA(cudaDriverGetVersion(&driver));
  TNT_CUDA(cudaRuntimeGetVersion(&runtime));
  return {{"case", "machine"},
          {"device", properties.name},
          {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
          {"multiprocessors", properties.multiProcessorCount},
          {"l2_bytes", properties.l2CacheSize},
          {"memory_bytes", properties.totalGlobalMem},
          {"driver_cuda", version_text(driver)},
          {"runtime_cuda", version_text(runtime)},
          {"tarantella", tnt_version()}};
}

void check_call(tnt_status_t status, const char* call) {
  if (status != TNT_SUCCESS) throw Failure(fmt::format("{}: {}", call, tnt_last_error()));
}

Gradients::Gradients(const Trainer& trainer, const Model& model) : trainer_(trainer) {
  std::vector<tnt_tensor_t> tensors;
  for (const ModelTensor& tensor : model.tensors) {
    tensors.push_back({tensor.name.c_str(), tensor.count, TNT_FLOAT32});
    counts_.push_back(tensor.count);
    memory_.emplace_back(tensor.count * sizeof(float));
  }
  tnt_reducer_options_t options = TNT_REDUCER_OPTIONS_INITIALIZER;
  options.name = model.name.c_str();
  options.device = trainer.device;
  TNT_CHECK(tnt_reducer_create(trainer.comm, tensors.data(), tensors.size(), &options, &reducer_));
}

std::size_t Gradients::bytes() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}) * sizeof(float);
}

std::size_t Gradients::buckets() const {
  std::size_t n = 0;
  TNT_CHECK(tnt_reducer_bucket_count(reducer_, &n));
  return n;
}

std::vector<bool> Gradients::last_of_buckets() const {
  std::vector<bool> last(size());
  for (std::size_t i = 0; i < buckets(); ++i) {
    tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
    TNT_CHECK(tnt_reducer_bucket(reducer_, i, &bucket));
    // gradients come from the last tensor to the first
    last[*std::min_element(bucket.tensors, bucket.tensors + bucket.n_tensors)] = true;
  }
  return last;
}

void Gradients::ready(std::size_t tensor) const {
  std::byte* const gradient = memory_[tensor].get();
  TNT_CHECK(tnt_reducer_ready(reducer_, tensor, gradient, gradient, 1.0 / trainer_.ranks, trainer_.stream));
}

void Gradients::finish() const { TNT_CHECK(tnt_reducer_finish(reducer_, trainer_.stream)); }

}  // namespace tnt::bench
