#include "simt/bucket_case.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/pack.hpp"

namespace tnt::testing {
namespace {

std::size_t address(Misalignment misaligned, tnt_dtype_t dtype, std::mt19937& random) {
  if (misaligned == Misalignment::no) return 0;
  return misaligned == Misalignment::bytes ? random() % 128 : random() % 128 / dtype_size(dtype) * dtype_size(dtype);
}

}  // namespace

std::vector<gpu::TensorShape> random_tensors(tnt_dtype_t wire, std::mt19937& random) {
  std::vector<gpu::TensorShape> tensors(1 + random() % 8);
  for (gpu::TensorShape& tensor : tensors) {
    const std::size_t limit = std::size_t{2} << random() % 13;
    tensor.count = std::array<std::size_t, 4>{0, 1, random() % limit | 1, random() % limit}[random() % 4];
    if (random() % 16 == 0) tensor.count += 20'000;
    tensor.dtype = is_float(wire) ? float_dtypes[random() % 4] : wire;
  }
  return tensors;
}

BucketCase::BucketCase(const CaseOptions& chosen)
    : options(chosen),
      layout(gpu::make_layout(options.tensors, options.wire)),
      bucket(layout.count * dtype_size(options.wire),
             [&] {
               std::mt19937 random(options.seed + 1);
               return address(options.bucket_lies, options.wire, random);
             }()),
      statistics(layout.tiles.size()) {
  std::mt19937 random(options.seed);
  const auto values = options.whole_numbers ? fill_whole : fill_random;
  constexpr std::array any_scale{1.0, 1.0, 0.0, 0.5, -2.5, 1.0 / 3, 1e-3, 1e10};
  constexpr std::array whole_scale{1.0, 2.0, -1.0, 0.0};
  for (const gpu::TensorShape& tensor : options.tensors) {
    const std::size_t bytes = tensor.count * dtype_size(tensor.dtype);
    in.emplace_back(bytes, address(options.tensors_lie, tensor.dtype, random));
    out.emplace_back(bytes, address(options.tensors_lie, tensor.dtype, random));
    values(in.back().data(), tensor.dtype, tensor.count, random);
    values(out.back().data(), tensor.dtype, tensor.count, random);
    double scale = options.whole_numbers ? whole_scale[random() % 4] : any_scale[random() % 8];
    if (tensor.dtype == TNT_UINT8 && scale < 0) scale = 1.0;
    const bool from_null = scale == 0.0 ? random() % 2 == 0 : options.some_lie_in_bucket && random() % 4 == 0;
    arguments.push_back(
        {.in = from_null ? nullptr : in.back().data(), .out = random() % 5 == 0 ? nullptr : out.back().data(), .scale = scale});
  }
  values(bucket.data(), options.wire, layout.count, random);
  in_bucket = bucket.copy();
}

gpu::BucketLaunch BucketCase::launch(std::uint32_t max_ctas) {
  gpu::BucketLaunch launch = layout.launch(layout.tiles.data(), arguments.data(), bucket.data());
  launch.max_ctas = max_ctas;
  return launch;
}

std::vector<std::byte> BucketCase::packed() const {
  std::vector<std::byte> result(bucket.bytes());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const gpu::TensorShape& tensor = options.tensors[i];
    const std::size_t at = layout.slots[i] * dtype_size(options.wire);
    if (arguments[i].in == nullptr && arguments[i].scale != 0.0) {
      std::memcpy(result.data() + at, in_bucket.data() + at, tensor.count * dtype_size(options.wire));
      continue;
    }
    scale(result.data() + at, options.wire, arguments[i].in, tensor.dtype, tensor.count, arguments[i].scale);
  }
  return result;
}

std::vector<std::byte> BucketCase::unpacked(std::size_t index) const {
  std::vector<std::byte> result = out[index].copy();
  if (arguments[index].out == nullptr) return result;
  const gpu::TensorShape& tensor = options.tensors[index];
  const std::byte* from = bucket.data() + layout.slots[index] * dtype_size(options.wire);
  scale(result.data(), tensor.dtype, from, options.wire, tensor.count, 1.0);
  return result;
}

void BucketCase::expect_packed() const {
  const std::vector<std::byte> expected = packed();
  const std::size_t at = first_difference(bucket.data(), expected.data(), options.wire, layout.count);
  EXPECT_EQ(at, layout.count) << "element " << at << " of the bucket of " << dtype_name(options.wire);
  EXPECT_TRUE(bucket.intact());
}

void BucketCase::expect_unpacked(const std::vector<std::vector<std::byte>>& expected) const {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const gpu::TensorShape& tensor = options.tensors[i];
    const std::size_t at = first_difference(out[i].data(), expected[i].data(), tensor.dtype, tensor.count);
    EXPECT_EQ(at, tensor.count) << "element " << at << " of tensor " << i << ", " << dtype_name(tensor.dtype) << " from "
                                << dtype_name(options.wire);
    EXPECT_TRUE(out[i].intact()) << "tensor " << i;
  }
}

}  // namespace tnt::testing
