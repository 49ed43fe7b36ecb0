#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/half_block.hpp"

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

// combine: one more source. finish: what is left to do when all n are combined.
struct Sum {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
  template <typename A>
  static A finish(A a, A /*n*/) noexcept {
    return a;
  }
};
struct Avg : Sum {
  template <typename A>
  static A finish(A a, A n) noexcept {
    return a / n;
  }
};
struct Prod : Sum {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN in any source stays: x != x is false for everything else.
struct Min : Sum {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (b < a || b != b) ? b : a;
  }
};
struct Max : Sum {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (a < b || b != b) ? b : a;
  }
};

// The loops below vectorise: an element of out is written after the same elements of the sources were read, and no others.
#define TNT_ELEMENTS_ARE_INDEPENDENT _Pragma("GCC ivdep")

template <typename T, typename Op>
[[gnu::always_inline]] inline void reduce_two(Unaligned<T>* out, const Unaligned<T>* first, const Unaligned<T>* second,
                                              std::size_t count) {
  using Acc = Accumulator<T>;
  using A = typename Acc::type;
  TNT_ELEMENTS_ARE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    const A sum = Op::template combine<A>(Acc::load(first[i].value), Acc::load(second[i].value));
    out[i].value = Acc::store(Op::template finish<A>(sum, A{2}));
  }
}

template <typename T, typename Op>
[[gnu::always_inline]] inline void reduce_block(Unaligned<T>* out, std::span<const void* const> sources, std::size_t begin,
                                                std::size_t length) {
  using Acc = Accumulator<T>;
  using A = typename Acc::type;
  std::array<A, block> sum;
  const auto* first = static_cast<const Unaligned<T>*>(sources[0]) + begin;
  for (std::size_t i = 0; i < length; ++i) sum[i] = Acc::load(first[i].value);
  for (const void* source : sources.subspan(1)) {
    const auto* next = static_cast<const Unaligned<T>*>(source) + begin;
    for (std::size_t i = 0; i < length; ++i) sum[i] = Op::template combine<A>(sum[i], Acc::load(next[i].value));
  }
  const auto n = static_cast<A>(sources.size());
  for (std::size_t i = 0; i < length; ++i) out[begin + i].value = Acc::store(Op::template finish<A>(sum[i], n));
}

// The conversions are instructions that the loops above would not be compiled to.
template <typename Op>
[[gnu::always_inline]] inline void reduce_float16_block(Unaligned<float16>* out, std::span<const void* const> sources,
                                                        std::size_t begin, std::size_t length, Isa isa) {
  std::array<Unaligned<float>, block> sum;
  std::array<Unaligned<float>, block> next;
  widen(sum.data(), static_cast<const Unaligned<float16>*>(sources[0]) + begin, length, isa);
  for (const void* source : sources.subspan(1)) {
    widen(next.data(), static_cast<const Unaligned<float16>*>(source) + begin, length, isa);
    for (std::size_t i = 0; i < length; ++i) sum[i].value = Op::template combine<float>(sum[i].value, next[i].value);
  }
  const auto n = static_cast<float>(sources.size());
  for (std::size_t i = 0; i < length; ++i) sum[i].value = Op::template finish<float>(sum[i].value, n);
  narrow(out + begin, sum.data(), length, 1.0F, isa);
}

template <typename T, typename Op>
void reduce_as(Unaligned<T>* out, std::span<const void* const> sources, std::size_t count, Isa isa) {
  with_isa(isa, [&]() TNT_INLINE_LAMBDA {
    if constexpr (std::is_same_v<T, float16>) {
      for (std::size_t begin = 0; begin < count; begin += block) {
        reduce_float16_block<Op>(out, sources, begin, std::min(block, count - begin), isa);
      }
      return;
    }
    if (sources.size() == 2) {
      reduce_two<T, Op>(out, static_cast<const Unaligned<T>*>(sources[0]), static_cast<const Unaligned<T>*>(sources[1]), count);
      return;
    }
    for (std::size_t begin = 0; begin < count; begin += block) {
      reduce_block<T, Op>(out, sources, begin, std::min(block, count - begin));
    }
  });
}

}  // namespace

void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, Isa isa) {
  dispatch(dtype, [&]<typename T>() {
    auto* typed = static_cast<Unaligned<T>*>(out);
    switch (op) {
      case TNT_SUM: return reduce_as<T, Sum>(typed, sources, count, isa);
      case TNT_AVG: return reduce_as<T, Avg>(typed, sources, count, isa);
      case TNT_MIN: return reduce_as<T, Min>(typed, sources, count, isa);
      case TNT_MAX: return reduce_as<T, Max>(typed, sources, count, isa);
      case TNT_PROD: return reduce_as<T, Prod>(typed, sources, count, isa);
    }
    fail(TNT_INVALID_ARGUMENT, "{} is not a reduction", static_cast<int>(op));
  });
}

}  // namespace tnt
