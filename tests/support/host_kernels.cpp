#include "support/host_kernels.hpp"

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "common/dtype.hpp"
#include "kernels/cpu/half.hpp"
#include "kernels/cpu/pack.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt::host {
namespace {

// A part of a tensor, in the bucket and in the tensor's memory.
struct Part {
  const gpu::Tile& tile;
  const gpu::TensorArgument& tensor;
  std::byte* bucket;
  tnt_dtype_t wire;
  tnt_dtype_t dtype;

  Part(const gpu::BucketLaunch& launch, std::uint32_t index)
      : tile(launch.tiles[index]),
        tensor(launch.tensors[tile.tensor]),
        bucket(static_cast<std::byte*>(launch.bucket) + tile.slot * dtype_size(launch.wire)),
        wire(launch.wire),
        dtype(static_cast<tnt_dtype_t>(tile.dtype)) {}

  [[nodiscard]] const void* in() const {
    return tensor.in == nullptr ? nullptr : static_cast<const std::byte*>(tensor.in) + tile.first * dtype_size(dtype);
  }
  [[nodiscard]] void* out() const { return static_cast<std::byte*>(tensor.out) + tile.first * dtype_size(dtype); }
};

template <typename T>
void add_statistics(gpu::Statistics& sum, const Unaligned<T>* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(Accumulator<T>::load(values[i].value));
    sum.sum_of_squares += value * value;
    if (!std::isfinite(value)) ++sum.non_finite;
  }
}

gpu::Statistics statistics_of(const void* values, tnt_dtype_t dtype, std::size_t count) {
  gpu::Statistics sum;
  dispatch(dtype, [&]<typename T>() { add_statistics(sum, static_cast<const Unaligned<T>*>(values), count); });
  return sum;
}

}  // namespace

void pack(const gpu::BucketLaunch& launch) {
  for (std::uint32_t i = 0; i < launch.n_tiles; ++i) {
    const Part part(launch, i);
    const std::size_t count = part.tile.count;
    const bool in_bucket = part.tensor.in == nullptr && part.tensor.scale != 0.0;
    if (!in_bucket) scale(part.bucket, part.wire, part.in(), part.dtype, count, part.tensor.scale);
    std::memset(part.bucket + count * dtype_size(part.wire), 0, part.tile.padding * dtype_size(part.wire));
    if (launch.statistics != nullptr) launch.statistics[i] = statistics_of(part.bucket, part.wire, count);
  }
}

void unpack(const gpu::BucketLaunch& launch) {
  for (std::uint32_t i = 0; i < launch.n_tiles; ++i) {
    const Part part(launch, i);
    const std::size_t count = part.tile.count;
    std::vector<std::byte> unwanted;
    if (part.tensor.out == nullptr) {
      if (launch.statistics == nullptr) continue;
      unwanted.resize(count * dtype_size(part.dtype));
    }
    void* const out = part.tensor.out == nullptr ? unwanted.data() : part.out();
    scale(out, part.dtype, part.bucket, part.wire, count, launch.factor == nullptr ? 1.0 : *launch.factor);
    if (launch.statistics != nullptr) launch.statistics[i] = statistics_of(out, part.dtype, count);
  }
}

void accumulate(const gpu::BucketLaunch& launch) {
  for (std::uint32_t i = 0; i < launch.n_tiles; ++i) {
    const Part part(launch, i);
    if (part.tensor.out == nullptr) continue;
    std::vector<float> terms(part.tile.count);
    scale(terms.data(), TNT_FLOAT32, part.bucket, part.wire, terms.size(), 1.0);
    auto* const sums = static_cast<Unaligned<float>*>(part.tensor.out) + part.tile.first;
    for (std::size_t k = 0; k < terms.size(); ++k) sums[k].value += terms[k];
  }
}

void clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor) {
  gpu::Statistics total;
  sum_statistics(statistics, n, &total);
  const double norm = std::sqrt(total.sum_of_squares);
  *factor = std::isfinite(norm) && norm > limit ? limit / norm : 1.0;
}

void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total) {
  gpu::Statistics sum;
  for (const gpu::Statistics& partial : std::span(partials, n)) {
    sum.sum_of_squares += partial.sum_of_squares;
    sum.non_finite += partial.non_finite;
  }
  *total = sum;
}

void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype) {
  if (n < 1 || n > gpu::max_sources) fail(TNT_INVALID_ARGUMENT, "{} buffers cannot be reduced into one", n);
  tnt::reduce(out, {sources, static_cast<std::size_t>(n)}, count, dtype, TNT_SUM);
}

}  // namespace tnt::host
