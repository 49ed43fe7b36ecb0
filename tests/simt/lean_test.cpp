// The lean kernels compared with the host: they are chosen where they may be, and only there, and give the same bits.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "simt/bucket_case.hpp"
#include "simt/kernel_runs.hpp"
#include "support/array.hpp"

namespace tnt::gpu {
namespace {

using namespace tnt::testing;  // NOLINT(*-using-namespace): this is a test

struct Pair {
  tnt_dtype_t own;
  tnt_dtype_t wire;
};

// Of blocks; 0: a block for each tile. Fewer blocks than tiles need bulk copies.
std::vector<std::uint32_t> limits() {
  return has_bulk_copies() ? std::vector<std::uint32_t>{0, 1, 3, 7} : std::vector<std::uint32_t>{0};
}

// Every remainder of a vector, several tiles, nothing at all.
std::vector<TensorShape> tensors_of(tnt_dtype_t dtype) {
  std::vector<TensorShape> tensors{{0, dtype}, {1, dtype}, {70'001, dtype}, {4096, dtype}, {0, dtype}, {20'000, dtype}};
  for (std::size_t count = 2; count < 40; count += 3) tensors.push_back({count, dtype});
  return tensors;
}

BucketCase aligned_case(Pair pair, unsigned seed) {
  return BucketCase({.wire = pair.wire,
                     .tensors = tensors_of(pair.own),
                     .tensors_lie = Misalignment::no,
                     .some_lie_in_bucket = seed % 2 == 0,
                     .seed = seed});
}

void expect_right(BucketCase& test, const BucketLaunch& launch) {
  run_pack(launch);
  test.expect_packed();
  std::vector<std::vector<std::byte>> expected;
  for (std::size_t i = 0; i < test.out.size(); ++i) expected.push_back(test.unpacked(i));
  run_unpack(launch);
  test.expect_unpacked(expected);
}

class Lean : public ::testing::TestWithParam<Pair> {};

TEST_P(Lean, CastsAndScalesAsTheHost) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    BucketCase test = aligned_case(GetParam(), seed);
    const BucketLaunch launch = test.launch(limits()[seed % limits().size()]);
    EXPECT_EQ(kernel_of(launch, Direction::pack), KernelKind::cast);
    EXPECT_EQ(kernel_of(launch, Direction::unpack), GetParam().own == GetParam().wire ? KernelKind::copy : KernelKind::cast);
    set_schedule(std::array{Schedule::ascending, Schedule::descending, Schedule::shuffled}[seed % 3], seed);
    expect_right(test, launch);
  }
  set_schedule(Schedule::ascending);
}

INSTANTIATE_TEST_SUITE_P(Pairs, Lean,
                         ::testing::Values(Pair{TNT_FLOAT32, TNT_FLOAT32}, Pair{TNT_FLOAT16, TNT_FLOAT16},
                                           Pair{TNT_BFLOAT16, TNT_BFLOAT16}, Pair{TNT_FLOAT32, TNT_FLOAT16},
                                           Pair{TNT_FLOAT32, TNT_BFLOAT16}),
                         [](const auto& info) {
                           return std::string(dtype_name(info.param.own)) + "_as_" + dtype_name(info.param.wire);
                         });

TEST(LeanCopies, AreOfEveryType) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    BucketCase test = aligned_case({dtype, dtype}, 4);
    for (TensorArgument& argument : test.arguments) argument.scale = argument.scale == 0.0 ? 0.0 : 1.0;
    for (const std::uint32_t max_ctas : limits()) {
      const BucketLaunch launch = test.launch(max_ctas);
      EXPECT_EQ(kernel_of(launch, Direction::pack), KernelKind::copy);
      EXPECT_EQ(kernel_of(launch, Direction::unpack), KernelKind::copy);
      expect_right(test, launch);
    }
  }
}

// More tensors than the parameters of one launch hold.
TEST(LeanCopies, OfManyTensorsTakeSeveralLaunches) {
  for (const std::size_t n : {few_tensors, few_tensors + 1, many_tensors, many_tensors + 1}) {
    BucketCase test({.wire = TNT_BFLOAT16,
                     .tensors = std::vector<TensorShape>(n, {3, TNT_FLOAT32}),
                     .tensors_lie = Misalignment::no,
                     .seed = static_cast<unsigned>(n)});
    EXPECT_EQ(kernel_of(test.launch(), Direction::pack), KernelKind::cast);
    expect_right(test, test.launch());
  }
}

TEST(LeanKernels, AreNotChosenForWhatTheyCannotDo) {
  const auto kind = [](BucketCase& test, Direction direction) { return kernel_of(test.launch(), direction); };
  BucketCase test = aligned_case({TNT_FLOAT32, TNT_BFLOAT16}, 1);
  ASSERT_EQ(kind(test, Direction::pack), KernelKind::cast);
  const TensorArgument aligned = test.arguments[2];
  test.arguments[2] = {.in = test.in[2].data() + 4, .out = test.out[2].data() + 8, .scale = 1.0};
  EXPECT_EQ(kind(test, Direction::pack), KernelKind::general);
  EXPECT_EQ(kind(test, Direction::unpack), KernelKind::general);
  test.arguments[2].scale = 0.0;  // it is not read
  EXPECT_EQ(kind(test, Direction::pack), KernelKind::cast);
  test.arguments[2] = aligned;
  test.arguments[0].in = test.in[2].data() + 1;  // an empty tensor
  EXPECT_EQ(kind(test, Direction::pack), KernelKind::cast);

  BucketLaunch launch = test.launch();
  launch.statistics = test.statistics.data();
  EXPECT_EQ(kernel_of(launch, Direction::pack), KernelKind::general);
  launch = test.launch();
  launch.bucket = test.bucket.data() + 8;
  EXPECT_EQ(kernel_of(launch, Direction::unpack), KernelKind::general);

  BucketCase mixed({.wire = TNT_FLOAT32, .tensors = {{5, TNT_FLOAT32}, {5, TNT_FLOAT16}}, .tensors_lie = Misalignment::no});
  EXPECT_EQ(kind(mixed, Direction::pack), KernelKind::general);
  BucketCase doubles({.wire = TNT_FLOAT32, .tensors = {{5, TNT_FLOAT64}}, .tensors_lie = Misalignment::no});
  EXPECT_EQ(kind(doubles, Direction::unpack), KernelKind::general);
}

}  // namespace
}  // namespace tnt::gpu
