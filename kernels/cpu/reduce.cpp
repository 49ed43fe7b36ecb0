#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/half.hpp"

namespace tnt {
namespace {

constexpr std::size_t block = 1024;  // accumulators of one block: at most 8 KiB, a quarter of the first-level cache

// Integers add and multiply as unsigned, where wrapping is defined.
template <typename A, typename F>
A wrapping(A a, A b, F f) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return static_cast<A>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

struct Sum {
  template <typename A>
  static A apply(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Prod {
  template <typename A>
  static A apply(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN in any source stays: x != x is false for everything else.
struct Min {
  template <typename A>
  static A apply(A a, A b) noexcept {
    return (b < a || b != b) ? b : a;
  }
};
struct Max {
  template <typename A>
  static A apply(A a, A b) noexcept {
    return (a < b || b != b) ? b : a;
  }
};

template <typename T, typename Op>
void reduce_as(Unaligned<T>* out, std::span<const void* const> sources, std::size_t count, bool average) {
  using Acc = Accumulator<T>;
  using A = typename Acc::type;
  const auto n = static_cast<A>(sources.size());
  std::array<A, block> sum;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    const auto* first = static_cast<const Unaligned<T>*>(sources[0]) + begin;
    for (std::size_t i = 0; i < length; ++i) sum[i] = Acc::load(first[i].value);
    for (const void* source : sources.subspan(1)) {
      const auto* next = static_cast<const Unaligned<T>*>(source) + begin;
      for (std::size_t i = 0; i < length; ++i) sum[i] = Op::template apply<A>(sum[i], Acc::load(next[i].value));
    }
    if (average) {
      for (std::size_t i = 0; i < length; ++i) sum[i] = sum[i] / n;
    }
    for (std::size_t i = 0; i < length; ++i) out[begin + i].value = Acc::store(sum[i]);
  }
}

}  // namespace

void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op) {
  dispatch(dtype, [&]<typename T>() {
    auto* typed = static_cast<Unaligned<T>*>(out);
    switch (op) {
      case TNT_SUM: return reduce_as<T, Sum>(typed, sources, count, false);
      case TNT_AVG: return reduce_as<T, Sum>(typed, sources, count, true);
      case TNT_MIN: return reduce_as<T, Min>(typed, sources, count, false);
      case TNT_MAX: return reduce_as<T, Max>(typed, sources, count, false);
      case TNT_PROD: return reduce_as<T, Prod>(typed, sources, count, false);
    }
    fail(TNT_INVALID_ARGUMENT, "{} is not a reduction", static_cast<int>(op));
  });
}

}  // namespace tnt
