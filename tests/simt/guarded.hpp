// Memory at a chosen address modulo 128 between guard bytes that must not be written, nor read under the address sanitizer; and
// values to test kernels with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "common/dtype.hpp"

namespace tnt::testing {

class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t address_modulo_128 = 0);
  Guarded(Guarded&& other) = default;
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded();

  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] const std::byte* data() const { return memory_.data() + begin_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }
  [[nodiscard]] bool intact() const;  // the guards

 private:
  void forbid(bool forbidden) const;

  std::vector<std::byte> memory_;
  std::size_t begin_ = 0;
  std::size_t bytes_ = 0;
};

inline constexpr tnt_dtype_t float_dtypes[] = {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16};
[[nodiscard]] inline bool is_float(tnt_dtype_t dtype) {
  return dtype == TNT_FLOAT32 || dtype == TNT_FLOAT64 || dtype == TNT_FLOAT16 || dtype == TNT_BFLOAT16;
}

// Ordinary values, random bits, infinities, NaN, denormals, both zeros.
void fill_random(std::byte* to, tnt_dtype_t dtype, std::size_t count, std::mt19937& random);
// Whole numbers from -8 to 8: sums of their squares are exact.
void fill_whole(std::byte* to, tnt_dtype_t dtype, std::size_t count, std::mt19937& random);

// The index of the first element that differs, or count. Any NaN equals any other, because processors do not guarantee its
// bits.
[[nodiscard]] std::size_t first_difference(const std::byte* a, const std::byte* b, tnt_dtype_t dtype, std::size_t count);

}  // namespace tnt::testing
