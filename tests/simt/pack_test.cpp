// Pack and unpack on the device compared with scale on the host: random plans, every pair of types, every alignment.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/pack.hpp"
#include "simt/bucket_case.hpp"
#include "simt/kernel_runs.hpp"
#include "support/array.hpp"
#include "support/effort.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

void pack_and_compare(const CaseOptions& options, std::uint32_t max_ctas = 0) {
  BucketCase test(options);
  run_pack(test.launch(max_ctas));
  test.expect_packed();
}

void unpack_and_compare(const CaseOptions& options, std::uint32_t max_ctas = 0) {
  BucketCase test(options);
  std::vector<std::vector<std::byte>> expected;
  for (std::size_t i = 0; i < test.out.size(); ++i) expected.push_back(test.unpacked(i));
  const std::vector<std::byte> before = test.bucket.copy();
  run_unpack(test.launch(max_ctas));
  test.expect_unpacked(expected);
  EXPECT_EQ(before, test.bucket.copy());
}

class Buckets : public ::testing::TestWithParam<tnt_dtype_t> {};  // the wire type

TEST_P(Buckets, OfRandomTensorsArePackedAndUnpacked) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    CaseOptions options{.wire = GetParam(), .tensors = random_tensors(GetParam(), random), .seed = seed};
    options.tensors_lie =
        std::array{Misalignment::no, Misalignment::elements, Misalignment::elements, Misalignment::bytes}[seed % 4];
    options.bucket_lies =
        std::array{Misalignment::no, Misalignment::no, Misalignment::elements, Misalignment::bytes}[seed / 4 % 4];
    options.some_lie_in_bucket = seed % 2 == 0;
    const std::uint32_t max_ctas = std::array{0U, 1U, 7U}[seed % 3];
    set_schedule(std::array{Schedule::ascending, Schedule::shuffled}[seed % 2], seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    pack_and_compare(options, max_ctas);
    unpack_and_compare(options, max_ctas);
    if (HasFailure()) break;
  }
  set_schedule(Schedule::ascending);
}

// With a factor from the device, also where the result is the slot itself.
TEST_P(Buckets, AreMultipliedByAFactor) {
  const double factor = 0.3;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const tnt_dtype_t wire = GetParam();
    BucketCase test({.wire = wire, .tensors = random_tensors(wire, random), .seed = seed});
    std::vector<std::vector<std::byte>> expected;
    for (std::size_t i = 0; i < test.out.size(); ++i) {
      expected.push_back(test.out[i].copy());
      if (test.arguments[i].out == nullptr) continue;
      const TensorShape& tensor = test.options.tensors[i];
      std::byte* const slot = test.bucket.data() + test.layout.slots[i] * dtype_size(wire);
      scale(expected[i].data(), tensor.dtype, slot, wire, tensor.count, factor);
      if (tensor.dtype == wire && i % 2 == 0) test.arguments[i].out = slot;
    }
    BucketLaunch launch = test.launch(seed % 3);
    launch.factor = &factor;
    run_unpack(launch);
    for (std::size_t i = 0; i < test.out.size(); ++i) {
      if (test.arguments[i].out == test.out[i].data() || test.arguments[i].out == nullptr) continue;
      std::memcpy(test.out[i].data(), test.arguments[i].out, test.out[i].bytes());
    }
    test.expect_unpacked(expected);
  }
}

// Every alignment of a tensor and every remainder of its length, at every alignment of the bucket.
TEST_P(Buckets, LieAnywhere) {
  const tnt_dtype_t wire = GetParam();
  for (const tnt_dtype_t own : all_dtypes) {
    if (own != wire && !(is_float(own) && is_float(wire))) continue;
    for (std::size_t at = 0; at < 16; ++at) {
      for (const std::size_t bucket_at : {std::size_t{0}, std::size_t{1}, dtype_size(wire), 3 * dtype_size(wire)}) {
        for (const std::size_t count : {1U, 2U, 15U, 31U, 33U, 52U, 1019U + static_cast<unsigned>(at)}) {
          std::mt19937 random(static_cast<unsigned>(at + count));
          Guarded in(count * dtype_size(own), at);
          Guarded out(count * dtype_size(own), at);
          fill_random(in.data(), own, count, random);
          const BucketLayout layout = make_layout(std::vector<TensorShape>{{count, own}}, wire);
          Guarded bucket(layout.count * dtype_size(wire), bucket_at);
          const TensorArgument argument{.in = in.data(), .out = out.data(), .scale = 0.75};
          const BucketLaunch launch = layout.launch(layout.tiles.data(), &argument, bucket.data());
          run_pack(launch);
          run_unpack(launch);
          std::vector<std::byte> packed(bucket.bytes());
          std::vector<std::byte> unpacked(out.bytes());
          scale(packed.data(), wire, in.data(), own, count, 0.75);
          scale(unpacked.data(), own, packed.data(), wire, count, 1.0);
          ASSERT_EQ(first_difference(bucket.data(), packed.data(), wire, layout.count), layout.count) << dtype_name(own);
          ASSERT_EQ(first_difference(out.data(), unpacked.data(), own, count), count) << dtype_name(own) << " at " << at;
          ASSERT_TRUE(bucket.intact() && out.intact()) << dtype_name(own) << " at " << at << ", " << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wire, Buckets, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Pack, MovesMegabytes) {
  for (const tnt_dtype_t own : float_dtypes) {
    const std::vector<TensorShape> tensors{{effort(1'234'567, 123'457), own}, {3, own}, {effort(262'144, 26'214), own}};
    pack_and_compare({.wire = TNT_FLOAT32, .tensors = tensors, .seed = 3});
    pack_and_compare({.wire = TNT_BFLOAT16, .tensors = tensors, .seed = 4}, 7);
    unpack_and_compare({.wire = TNT_FLOAT16, .tensors = tensors, .seed = 5});
    unpack_and_compare({.wire = TNT_FLOAT32, .tensors = tensors, .seed = 6}, 7);
  }
}

// A copy keeps the bits, including those of a NaN.
TEST(Pack, KeepsAllBitsWhereNothingIsScaledOrCast) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    BucketCase test({.wire = dtype, .tensors = {{5001, dtype}}, .seed = 8});
    test.arguments[0] = {.in = test.in[0].data(), .out = test.out[0].data()};
    run_pack(test.launch());
    EXPECT_EQ(std::memcmp(test.bucket.data(), test.in[0].data(), test.in[0].bytes()), 0) << dtype_name(dtype);
    run_unpack(test.launch());
    EXPECT_EQ(test.out[0].copy(), test.in[0].copy()) << dtype_name(dtype);
  }
}

TEST(Pack, ReadsNothingThatIsScaledByZero) {
  auto* const nowhere = reinterpret_cast<const void*>(std::uintptr_t{16});
  for (const void* in : {static_cast<const void*>(nullptr), nowhere}) {
    BucketCase test({.wire = TNT_BFLOAT16, .tensors = {{3001, TNT_FLOAT32}, {7, TNT_FLOAT64}}, .seed = 9});
    test.arguments[0].in = in;
    test.arguments[0].scale = 0.0;
    test.arguments[1] = test.arguments[0];
    run_pack(test.launch());
    EXPECT_EQ(test.bucket.copy(), std::vector<std::byte>(test.bucket.bytes()));
    EXPECT_TRUE(test.bucket.intact());
  }
}

TEST(Pack, OfNothingDoesNothing) {
  pack_and_compare({.tensors = {}});
  pack_and_compare({.tensors = {{0, TNT_FLOAT32}, {0, TNT_FLOAT16}}});
  unpack_and_compare({.tensors = {{0, TNT_FLOAT32}}});
}

TEST(Pack, RefusesWhatIsNoDtype) {
  BucketCase test({.tensors = {{3, TNT_FLOAT32}}});
  BucketLaunch launch = test.launch();
  launch.wire = static_cast<tnt_dtype_t>(77);
  EXPECT_THROW(run_pack(launch), Error);
  EXPECT_THROW(run_unpack(launch), Error);
}

// Packs, and compares with the host's conversion of each value.
template <typename To, typename From>
void expect_converted(tnt_dtype_t wire, tnt_dtype_t own, const std::vector<From>& values) {
  const BucketLayout layout = make_layout(std::vector<TensorShape>{{values.size(), own}}, wire);
  std::vector<To> bucket(layout.count);
  const TensorArgument argument{.in = values.data()};
  run_pack(layout.launch(layout.tiles.data(), &argument, bucket.data()));
  std::vector<To> expected(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) expected[i] = Accumulator<To>::store(Accumulator<From>::load(values[i]));
  const auto* got = reinterpret_cast<const std::byte*>(bucket.data());
  EXPECT_EQ(first_difference(got, reinterpret_cast<const std::byte*>(expected.data()), wire, values.size()), values.size());
}

template <typename Half>
void expect_converts_all(tnt_dtype_t dtype) {
  std::vector<Half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  expect_converted<float>(TNT_FLOAT32, dtype, all);
  // every value, every limit between two values, and their neighbours
  std::vector<float> floats;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const float value = to_float(all[i]);
    const float middle = std::isfinite(value) ? value + (to_float(all[i + 1]) - value) / 2 : value;
    for (const float x : {value, middle}) {
      floats.insert(floats.end(), {x, std::nextafter(x, -std::numeric_limits<float>::infinity()),
                                   std::nextafter(x, std::numeric_limits<float>::infinity())});
    }
  }
  // if rounded, they would not be NaN
  for (const std::uint32_t nan : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    floats.push_back(std::bit_cast<float>(nan));
  }
  expect_converted<Half>(dtype, TNT_FLOAT32, floats);
}

TEST(Pack, RoundsEveryHalfAsTheHost) {
  expect_converts_all<float16>(TNT_FLOAT16);
  expect_converts_all<bfloat16>(TNT_BFLOAT16);
}

}  // namespace
}  // namespace tnt::gpu
