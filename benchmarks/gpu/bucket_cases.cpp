#include <fmt/core.h>

#include <algorithm>

#include "benchmarks/gpu/bucket_set.hpp"
#include "benchmarks/gpu/cases.hpp"
#include "benchmarks/gpu/kernels.hpp"
#include "benchmarks/gpu/measure.hpp"

namespace tnt::bench {
namespace {

using Bucket = BucketSet::Bucket;

class Runs {
 public:
  Runs(const BucketSet& set, double seconds) : set_(set), seconds_(seconds) {}

  // The cost of one launch for each bucket.
  [[nodiscard]] Cost of(const std::function<void(const Bucket&)>& launch, Queue queue) const {
    const auto pass = [&] {
      for (const Bucket& bucket : set_.buckets()) launch(bucket);
    };
    return measure(pass, set_.buckets().size(), queue, stream_.get(), seconds_);
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

  // The faster of two ways to copy the bytes that packing moves.
  [[nodiscard]] double copy_us() const {
    const auto half = [](const Bucket& bucket) { return bucket.moved / 2 / 16 * 16; };
    const Cost kernel =
        of([&](const Bucket& bucket) { copy_by_kernel(bucket.memory, bucket.gradients, half(bucket), stream()); }, Queue::held);
    const Cost runtime = of(
        [&](const Bucket& bucket) {
          TNT_CUDA(cudaMemcpyAsync(bucket.memory, bucket.gradients, half(bucket), cudaMemcpyDeviceToDevice, stream()));
        },
        Queue::held);
    return std::min(kernel.us, runtime.us);
  }

  // One cudaMemcpyAsync for each tensor of a bucket.
  [[nodiscard]] double memcpy_us() const {
    const Cost times = of(
        [&](const Bucket& bucket) {
          for (const BucketSet::Tensor& tensor : bucket.tensors) {
            TNT_CUDA(cudaMemcpyAsync(tensor.slot, tensor.gradient, tensor.bytes, cudaMemcpyDeviceToDevice, stream()));
          }
        },
        Queue::free);
    return times.us;
  }

 private:
  const BucketSet& set_;
  double seconds_;
  CudaStream stream_;
};

void run_case(const Model& model, const Cut& cut, const Variant& variant, double seconds) {
  const BucketSet set(model, cut, variant);
  const Runs runs(set, seconds);
  const double n = static_cast<double>(set.buckets().size());
  const double moved = static_cast<double>(set.moved()) / n;
  const double copy = runs.copy_us();
  const bool is_copy = variant.wire == TNT_FLOAT32 && !variant.statistics && variant.max_ctas == 0;
  const double tensors = is_copy ? runs.memcpy_us() : 0.0;
  for (const bool packs : {true, false}) {
    const auto launch = [&](const Bucket& bucket) {
      if (packs) {
        gpu::pack(bucket.launch, runs.stream());
      } else {
        gpu::unpack(bucket.launch, runs.stream());
      }
    };
    const Cost device = runs.of(launch, Queue::held);
    const Cost caller = runs.of(launch, Queue::free);
    nlohmann::ordered_json line{
        {"case", fmt::format("{}/{}/{}/{}", packs ? "pack" : "unpack", model.name, variant.name, cut.name)},
        {"bytes", moved},
        {"tensors", static_cast<double>(set.tensors()) / n},
        {"us", device.us},
        {"gb_per_s", moved / device.us * 1e-3},
        {"copy_us", copy},
        {"copy_gb_per_s", moved / copy * 1e-3},
        {"percent_of_copy", 100.0 * copy / device.us},
        {"caller_us", caller.us},
        {"host_us", caller.host_us},
        {"launches", kernels_in([&] { launch(set.buckets().front()); }, runs.stream())}};
    if (is_copy) {
      line["memcpy_per_tensor_us"] = tensors;
      line["ratio_to_memcpy_per_tensor"] = tensors / caller.us;
    }
    print_line(line);
  }
}

}  // namespace

void run_bucket_cases(const Model& model, double seconds) {
  const std::size_t mebibyte = std::size_t{1} << 20;
  const std::vector<Cut> cuts{{"all", 0, 0}, {"16MiB", 16 * mebibyte, 0}, {"1MiB", 0, mebibyte}};
  const std::vector<Variant> variants{
      {"float32", TNT_FLOAT32, 0}, {"bfloat16", TNT_BFLOAT16, 0}, {"misaligned", TNT_FLOAT32, 1}};
  for (const Cut& cut : cuts) {
    for (const Variant& variant : variants) run_case(model, cut, variant, seconds);
  }
  const std::vector<Variant> of_large_buckets{{.name = "float8_e4m3", .wire = TNT_FLOAT8_E4M3},
                                              {.name = "statistics", .statistics = true},
                                              {.name = "8_ctas", .max_ctas = 8},
                                              {.name = "16_ctas", .max_ctas = 16},
                                              {.name = "32_ctas", .max_ctas = 32}};
  for (const Variant& variant : of_large_buckets) run_case(model, cuts[1], variant, seconds);
}

}  // namespace tnt::bench
