// A reference for 16-bit floats: decoded with ldexp, encoded by searching all values for the nearest, ties to even.
#pragma once

#include <cstdint>
#include <vector>

namespace tnt::testing {

class HalfFormat {
 public:
  [[nodiscard]] static const HalfFormat& float16();
  [[nodiscard]] static const HalfFormat& bfloat16();

  [[nodiscard]] double decode(std::uint16_t bits) const;
  [[nodiscard]] std::uint16_t encode(double value) const;
  [[nodiscard]] std::uint16_t infinity() const { return infinity_; }
  [[nodiscard]] bool is_nan(std::uint16_t bits) const { return (bits & 0x7fffU) > infinity_; }

 private:
  HalfFormat(int exponent_bits, int mantissa_bits);

  int mantissa_bits_;
  int bias_;
  std::uint16_t infinity_;
  std::vector<double> values_;  // values of the bit patterns 0, 1, ..., ascending; infinity counts as the next power of two
};

}  // namespace tnt::testing
