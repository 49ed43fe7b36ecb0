// The same bits with every instruction set, including denormals and infinities; a NaN stays a NaN, whatever its bits.
#include "kernels/cpu/isa.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/pack.hpp"
#include "kernels/cpu/reduce.hpp"
#include "support/array.hpp"

namespace tnt {
namespace {

using Bytes = std::vector<std::byte>;

// The values, with all NaNs made equal.
template <typename T>
bool same_values(const Bytes& a, const Bytes& b) {
  for (std::size_t i = 0; i < a.size(); i += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a.data() + i, sizeof(T));
    std::memcpy(&y, b.data() + i, sizeof(T));
    const auto value = [](T v) { return Accumulator<T>::load(v); };
    const bool nan = value(x) != value(x) && value(y) != value(y);
    if (!nan && std::memcmp(&x, &y, sizeof(T)) != 0) return false;
  }
  return true;
}

bool same(const Bytes& a, const Bytes& b, tnt_dtype_t dtype) {
  return dispatch(dtype, [&]<typename T>() { return same_values<T>(a, b); });
}

// Random bits: for 16-bit floats every value, including all kinds of NaN.
Bytes random_bits(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes result(bytes);
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(result.data() + i, &word, 8);
  }
  return result;
}

class IsaTest : public ::testing::TestWithParam<Isa> {
  void SetUp() override {
    if (!has_isa(GetParam())) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
  }
};

TEST_P(IsaTest, ReducesToTheBitsOfTheBaseline) {
  constexpr std::size_t count = 70'001;
  for (const tnt_dtype_t dtype : testing::all_dtypes) {
    const std::size_t bytes = count * dtype_size(dtype);
    for (const std::size_t n : {2U, 3U, 5U}) {
      std::vector<Bytes> in;
      std::vector<const void*> sources;
      for (unsigned i = 0; i < n; ++i) sources.push_back(in.emplace_back(random_bits(bytes, i)).data());
      for (std::size_t i = 0; i < n; ++i) sources[i] = in[i].data();
      for (const tnt_op_t op : testing::all_ops) {
        Bytes expected(bytes);
        Bytes found(bytes);
        reduce(expected.data(), sources, count, dtype, op, Isa::baseline);
        reduce(found.data(), sources, count, dtype, op, GetParam());
        EXPECT_TRUE(same(found, expected, dtype)) << op_name(op) << " of " << n << " " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(IsaTest, ScalesToTheBitsOfTheBaseline) {
  constexpr std::size_t count = 70'001;
  for (const tnt_dtype_t dtype : testing::all_dtypes) {
    const std::size_t bytes = count * dtype_size(dtype);
    const Bytes in = random_bits(bytes, 1);
    for (const double factor : {0.5, 1.0 / 3, 1e-30}) {
      Bytes expected(bytes);
      Bytes found(bytes);
      scale(expected.data(), dtype, in.data(), dtype, count, factor, Isa::baseline);
      scale(found.data(), dtype, in.data(), dtype, count, factor, GetParam());
      EXPECT_TRUE(same(found, expected, dtype)) << dtype_name(dtype) << " times " << factor;
    }
  }
}

constexpr tnt_dtype_t floating[] = {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16};

TEST_P(IsaTest, CastsToTheBitsOfTheBaseline) {
  constexpr std::size_t count = 70'001;
  for (const tnt_dtype_t from : floating) {
    const Bytes in = random_bits(count * dtype_size(from), 1);
    for (const tnt_dtype_t to : floating) {
      for (const double factor : {1.0, 1.0 / 3}) {
        Bytes expected(count * dtype_size(to));
        Bytes found(expected.size());
        scale(expected.data(), to, in.data(), from, count, factor, Isa::baseline);
        scale(found.data(), to, in.data(), from, count, factor, GetParam());
        EXPECT_TRUE(same(found, expected, to)) << dtype_name(from) << " to " << dtype_name(to) << " times " << factor;
      }
    }
  }
}

#if defined(__x86_64__)
// As in TensorFlow's threads.
class FlushesDenormals {
 public:
  FlushesDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | flush_to_zero | denormals_are_zero); }
  FlushesDenormals(const FlushesDenormals&) = delete;
  FlushesDenormals& operator=(const FlushesDenormals&) = delete;
  ~FlushesDenormals() { _mm_setcsr(before_); }
  [[nodiscard]] static bool still() { return (_mm_getcsr() & (flush_to_zero | denormals_are_zero)) == 0x8040U; }

 private:
  static constexpr unsigned flush_to_zero = 0x8000;
  static constexpr unsigned denormals_are_zero = 0x0040;
  unsigned before_;
};

TEST_P(IsaTest, AThreadThatFlushesDenormalsGetsTheSameBits) {
  constexpr std::size_t count = 66'000;
  for (const tnt_dtype_t dtype : floating) {
    const std::size_t size = dtype_size(dtype);
    Bytes in = random_bits(count * size, 1);
    for (std::size_t i = 0; i < count; i += 2) in[i * size + size - 1] &= std::byte{0x80};  // many small ones
    const std::vector<const void*> sources{in.data(), in.data() + size};
    for (const bool sum : {true, false}) {
      const auto compute = [&](Bytes& to) {
        if (sum) return reduce(to.data(), sources, count - 1, dtype, TNT_SUM, GetParam());
        scale(to.data(), dtype == TNT_FLOAT32 ? TNT_FLOAT16 : TNT_FLOAT32, in.data(), dtype, count - 1, 0.5, GetParam());
      };
      Bytes expected(count * sizeof(double));
      Bytes found(expected.size());
      compute(expected);
      {
        const FlushesDenormals flushing;
        compute(found);
        EXPECT_TRUE(FlushesDenormals::still());
      }
      EXPECT_TRUE(same(found, expected, sum ? dtype : dtype == TNT_FLOAT32 ? TNT_FLOAT16 : TNT_FLOAT32)) << dtype_name(dtype);
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(All, IsaTest, ::testing::Values(Isa::baseline, Isa::avx2, Isa::avx512),
                         [](const auto& info) { return info.param == Isa::avx512 ? "AVX512" : isa_name(info.param); });

}  // namespace
}  // namespace tnt
