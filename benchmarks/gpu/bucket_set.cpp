#include "benchmarks/gpu/bucket_set.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "benchmarks/types.hpp"
#include "common/dtype.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t line = 256;  // alignment of allocators

std::size_t rounded_up(std::size_t bytes) { return (bytes + line - 1) / line * line; }
std::size_t bytes_of(const Model& model, std::size_t tensor) { return model.tensors[tensor].count * sizeof(float); }

// Buckets of tensors from the last to the first, as backward produces them.
std::vector<std::vector<std::size_t>> cut_into_runs(const Model& model, const Cut& cut) {
  std::vector<std::vector<std::size_t>> runs;
  std::vector<std::size_t> open;
  std::size_t bytes = 0;
  const auto close = [&] {
    if (!open.empty()) runs.push_back(std::move(open));
    open.clear();
    bytes = 0;
  };
  for (std::size_t i = model.tensors.size(); i-- > 0;) {
    const std::size_t own = bytes_of(model, i);
    if (cut.most > 0 && own > cut.most) continue;
    if (cut.most > 0 && bytes + own > cut.most) close();
    open.push_back(i);
    bytes += own;
    if (cut.least > 0 && bytes >= cut.least) close();
  }
  if (cut.least > 0 && bytes < cut.least && !runs.empty()) {  // the remainder is not a bucket of this size
    runs.back().insert(runs.back().end(), open.begin(), open.end());
  } else {
    close();
  }
  return runs;
}

int cache_bytes() {
  int device = 0;
  int bytes = 0;
  TNT_CUDA(cudaGetDevice(&device));
  TNT_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return bytes;
}

template <typename T>
Memory uploaded(const std::vector<T>& values) {
  Memory memory(values.size() * sizeof(T));
  TNT_CUDA(cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace

BucketSet::BucketSet(const Model& model, const Cut& cut, const Variant& variant) {
  const auto runs = cut_into_runs(model, cut);
  if (runs.empty()) throw Failure(fmt::format("{}: no tensor fits into a bucket of {}", model.name, cut.name));
  std::size_t one_copy = 0;
  for (const auto& run : runs) {
    std::vector<gpu::TensorShape> shapes;
    for (const std::size_t i : run) {
      shapes.push_back({model.tensors[i].count, TNT_FLOAT32});
      one_copy += 2 * bytes_of(model, i);
    }
    layouts_.push_back(gpu::make_layout(shapes, variant.wire));
    memory_.push_back(uploaded(layouts_.back().tiles));
    tiles_.push_back(reinterpret_cast<const gpu::Tile*>(memory_.back().get()));
  }
  const std::size_t copies = 1 + 4 * static_cast<std::size_t>(cache_bytes()) / one_copy;
  std::size_t free = 0;
  std::size_t all = 0;
  TNT_CUDA(cudaMemGetInfo(&free, &all));
  if (copies * one_copy * 11 / 10 > free) {
    throw Failure(fmt::format("{} needs {} MiB of the GPU's memory, of which {} MiB are free", model.name,
                              (copies * one_copy) >> 20, free >> 20));
  }
  for (std::size_t i = 0; i < copies; ++i) add_copy(model, runs, variant);
}

// Both sides have 4 bytes for each element, which is enough for a copy of the bytes that packing moves.
void BucketSet::add_copy(const Model& model, const std::vector<std::vector<std::size_t>>& runs, const Variant& variant) {
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const gpu::BucketLayout& layout = layouts_[run];
    std::size_t bytes = 0;
    for (const std::size_t i : runs[run]) bytes += rounded_up(bytes_of(model, i) + variant.misaligned * sizeof(float));
    memory_.emplace_back(bytes);
    std::byte* const gradients = memory_.back().get();
    memory_.emplace_back(std::max(rounded_up(layout.count * sizeof(float)), bytes));
    std::byte* const memory = memory_.back().get();

    Bucket bucket{.launch = {}, .gradients = gradients, .memory = memory, .moved = 0, .tensors = {}};
    std::vector<gpu::TensorArgument> arguments;
    std::size_t at = 0;
    for (std::size_t i = 0; i < runs[run].size(); ++i) {
      const std::size_t own = bytes_of(model, runs[run][i]);
      std::byte* const gradient = gradients + at + variant.misaligned * sizeof(float);
      arguments.push_back({.in = gradient, .out = gradient, .scale = 1.0});
      bucket.tensors.push_back({gradient, memory + layout.slots[i] * dtype_size(variant.wire), own});
      bucket.moved += own + own / sizeof(float) * dtype_size(variant.wire);
      at += rounded_up(own + variant.misaligned * sizeof(float));
    }
    arguments_.push_back(std::move(arguments));
    bucket.launch = layout.launch(tiles_[run], arguments_.back().data(), memory);
    bucket.launch.max_ctas = variant.max_ctas;
    if (variant.statistics) {
      memory_.emplace_back(layout.tiles.size() * sizeof(gpu::Statistics));
      bucket.launch.statistics = reinterpret_cast<gpu::Statistics*>(memory_.back().get());
    }
    buckets_.push_back(std::move(bucket));
  }
}

std::size_t BucketSet::tensors() const noexcept {
  return std::accumulate(buckets_.begin(), buckets_.end(), std::size_t{0},
                         [](std::size_t sum, const Bucket& bucket) { return sum + bucket.tensors.size(); });
}

std::size_t BucketSet::moved() const noexcept {
  return std::accumulate(buckets_.begin(), buckets_.end(), std::size_t{0},
                         [](std::size_t sum, const Bucket& bucket) { return sum + bucket.moved; });
}

}  // namespace tnt::bench
