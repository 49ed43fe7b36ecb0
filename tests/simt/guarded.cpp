#include "simt/guarded.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "kernels/cpu/half.hpp"

namespace tnt::testing {
namespace {

constexpr std::size_t guard = 256;
constexpr std::byte mark{0xa5};

template <typename T>
T made_of(double value) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
    return Accumulator<T>::store(static_cast<float>(value));
  } else {
    return static_cast<T>(static_cast<typename Accumulator<T>::type>(value));
  }
}

template <typename T>
double as_double(T value) {
  return static_cast<double>(Accumulator<T>::load(value));
}

template <typename T>
T random_value(std::mt19937& random) {
  const auto bits = std::uint64_t{random()} << 32 | random();
  T value;
  std::memcpy(&value, &bits, sizeof(T));  // any bits
  if constexpr (std::is_integral_v<T>) return value;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (random() % 8) {
    case 0: return value;
    case 1:
      return made_of<T>(std::array{0.0, -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}[random() % 5]);
    case 2: return made_of<T>(std::ldexp(static_cast<double>(random() % 64) - 32, -149 + static_cast<int>(random() % 24)));
    case 3: return made_of<T>(std::ldexp(static_cast<double>(random() % 64) - 32, -24 + static_cast<int>(random() % 12)));
    default: return made_of<T>(std::ldexp(static_cast<double>(random()) - 0x1p31, -31 + static_cast<int>(random() % 20) - 10));
  }
}

template <typename Make>
void fill(std::byte* to, std::size_t count, const Make& make) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = make();
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

Guarded::Guarded(std::size_t bytes, std::size_t address_modulo_128) : memory_(bytes + 128 + 2 * guard, mark), bytes_(bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard;
  begin_ = guard + (address_modulo_128 + 128 - address % 128) % 128;
  forbid(true);
}

Guarded::~Guarded() {
  if (!memory_.empty()) forbid(false);
}

void Guarded::forbid(bool forbidden) const {
#if defined(__SANITIZE_ADDRESS__)
  if (forbidden) {
    ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
    ASAN_UNPOISON_MEMORY_REGION(data(), bytes_);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
  }
#endif
  (void)forbidden;
}

bool Guarded::intact() const {
  forbid(false);
  const auto is_mark = [](std::byte byte) { return byte == mark; };
  const bool result =
      std::all_of(memory_.data(), data(), is_mark) && std::all_of(data() + bytes_, memory_.data() + memory_.size(), is_mark);
  forbid(true);
  return result;
}

void fill_random(std::byte* to, tnt_dtype_t dtype, std::size_t count, std::mt19937& random) {
  dispatch(dtype, [&]<typename T>() { fill(to, count, [&] { return random_value<T>(random); }); });
}

void fill_whole(std::byte* to, tnt_dtype_t dtype, std::size_t count, std::mt19937& random) {
  dispatch(dtype, [&]<typename T>() {
    fill(to, count, [&] { return made_of<T>(static_cast<double>(random() % 17) - (std::is_unsigned_v<T> ? 0 : 8)); });
  });
}

std::size_t first_difference(const std::byte* a, const std::byte* b, tnt_dtype_t dtype, std::size_t count) {
  const std::size_t size = dtype_size(dtype);
  if (count == 0 || std::memcmp(a, b, count * size) == 0) return count;
  return dispatch(dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(a + i * size, b + i * size, size) == 0) continue;
      T x;
      T y;
      std::memcpy(&x, a + i * size, size);
      std::memcpy(&y, b + i * size, size);
      if (!std::isnan(as_double(x)) || !std::isnan(as_double(y))) return i;
    }
    return count;
  });
}

}  // namespace tnt::testing
