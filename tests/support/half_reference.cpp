#include "support/half_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tnt::testing {

HalfFormat::HalfFormat(int exponent_bits, int mantissa_bits)
    : mantissa_bits_(mantissa_bits),
      bias_((1 << (exponent_bits - 1)) - 1),
      infinity_(static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits)) {
  for (unsigned bits = 0; bits <= infinity_; ++bits) {
    const int exponent = static_cast<int>(bits >> mantissa_bits);
    const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
    values_.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias_ - mantissa_bits)
                                    : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias_ - mantissa_bits));
  }
}

const HalfFormat& HalfFormat::float16() {
  static const HalfFormat format(5, 10);
  return format;
}

const HalfFormat& HalfFormat::bfloat16() {
  static const HalfFormat format(8, 7);
  return format;
}

double HalfFormat::decode(std::uint16_t bits) const {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const unsigned magnitude = bits & 0x7fffU;
  if (magnitude > infinity_) return std::numeric_limits<double>::quiet_NaN();
  return sign * (magnitude == infinity_ ? std::numeric_limits<double>::infinity() : values_[magnitude]);
}

std::uint16_t HalfFormat::encode(double value) const {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity_ | 1U);
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
  auto bits = static_cast<unsigned>(above - values_.begin());
  if (above == values_.end()) {
    bits = infinity_;
  } else if (*above != magnitude) {
    const double middle = (*above + above[-1]) / 2;  // exact: double has enough bits
    const bool odd_above = bits % 2 != 0;
    if (magnitude < middle || (magnitude == middle && odd_above)) --bits;
  }
  return static_cast<std::uint16_t>(sign | bits);
}

}  // namespace tnt::testing
