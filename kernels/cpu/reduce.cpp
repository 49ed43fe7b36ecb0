#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/memory_model.hpp"
#include "kernels/cpu/register_sums.hpp"

namespace tnt {

// An integer whose operation needs no wider type.
template <typename T>
struct Narrow {
  T value;
};
template <typename T>
struct Accumulator<Narrow<T>> {
  using type = T;
  [[nodiscard]] static type load(Narrow<T> x) noexcept { return x.value; }
  [[nodiscard]] static Narrow<T> store(type x) noexcept { return {x}; }
};

namespace {

// Integers add and multiply as unsigned integers, whose wrapping is defined.
template <typename A, typename F>
A wrapping(A a, A b, F f) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return static_cast<A>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

// combine: two sources, or the results of two groups of sources. finish: completes a result of n sources. Partial: the
// operation for the result of a group. in_registers: the maximum number of sources whose reduction has its own loop.
struct Sum {
  using Partial = Sum;
  static constexpr std::size_t in_registers = max_in_registers;
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
  using Partial = Prod;
  static constexpr std::size_t in_registers = 2;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN in any source is kept: x != x is false for other values.
struct Min : Prod {
  using Partial = Min;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (b < a || b != b) ? b : a;
  }
};
struct Max : Prod {
  using Partial = Max;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (a < b || b != b) ? b : a;
  }
};

// Operations on bits.
struct And : Prod {
  using Partial = And;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return static_cast<A>(a & b);
  }
};
struct Or : Prod {
  using Partial = Or;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return static_cast<A>(a | b);
  }
};
struct Xor : Prod {
  using Partial = Xor;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return static_cast<A>(a ^ b);
  }
};
// The same on truth values. A single source becomes one, too.
template <typename OnBits>
struct Logical : Prod {
  using Partial = Logical;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return OnBits::combine(static_cast<A>(a != 0), static_cast<A>(b != 0));
  }
  template <typename A>
  static A finish(A a, A /*n*/) noexcept {
    return static_cast<A>(a != 0);
  }
};

template <typename T, typename Op, typename Out, std::size_t... i>
[[gnu::always_inline]] inline void reduce_sources(Unaligned<Out>* out, std::span<const void* const> sources, std::size_t begin,
                                                  std::size_t length, std::index_sequence<i...> indices) {
  using A = typename Accumulator<T>::type;
  constexpr std::size_t n = sizeof...(i);
  const auto from = element_pointers<T>(sources, begin, indices);
  TNT_ELEMENTS_ARE_INDEPENDENT
  for (std::size_t at = 0; at < length; ++at) {
    const auto term = [&](std::size_t source) TNT_INLINE_LAMBDA -> A { return Accumulator<T>::load(from[source][at].value); };
    const auto combine = [](A a, A b) TNT_INLINE_LAMBDA -> A { return Op::template combine<A>(a, b); };
    out[at].value = Accumulator<Out>::store(Op::template finish<A>(in_tree<0, n>(term, combine), static_cast<A>(n)));
  }
}

// For at most Op::in_registers sources.
template <typename T, typename Op, typename Out>
[[gnu::always_inline]] inline void reduce_in_registers(Unaligned<Out>* out, std::span<const void* const> sources,
                                                       std::size_t begin, std::size_t length) {
  with_indices<Op::in_registers>(
      sources.size(), [&](auto indices) TNT_INLINE_LAMBDA { reduce_sources<T, Op>(out, sources, begin, length, indices); });
}

// One step of the computation of a tree: combines some consecutive sources in registers, then combines the last two results
// `merges` times.
struct TreeStep {
  std::size_t first;
  std::size_t sources;
  std::size_t merges;
};

constexpr std::size_t block = 512;       // elements; small enough that all pending results stay in the L1 cache
constexpr std::size_t max_pending = 20;  // results; enough for a million sources

// max: the maximum number of sources of a step.
void add_steps(std::vector<TreeStep>& steps, std::size_t max, std::size_t first, std::size_t sources) {
  if (sources <= max) return steps.push_back({first, sources, 0});
  const std::size_t left = left_terms(sources);
  add_steps(steps, max, first, left);
  add_steps(steps, max, first + left, sources - left);
  ++steps.back().merges;
}

// The tree over groups of these sizes.
void add_steps(std::vector<TreeStep>& steps, std::size_t max, std::size_t first, std::span<const std::size_t> groups) {
  if (groups.size() == 1) return add_steps(steps, max, first, groups[0]);
  const auto left = groups.first(left_terms(groups.size()));
  add_steps(steps, max, first, left);
  add_steps(steps, max, std::accumulate(left.begin(), left.end(), first), groups.subspan(left.size()));
  ++steps.back().merges;
}

// Converts in blocks, because the compiler does not generate the conversion instructions in the loops above.
template <typename Op>
[[gnu::always_inline]] inline void reduce_float16_step(Unaligned<float>* out, std::span<const void* const> sources,
                                                       std::size_t begin, std::size_t length, Isa isa) {
  std::array<std::array<Unaligned<float>, block>, max_in_registers> wide;
  std::array<const void*, max_in_registers> from{};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    widen(wide[i].data(), static_cast<const Unaligned<float16>*>(sources[i]) + begin, length, isa);
    from[i] = wide[i].data();
  }
  reduce_in_registers<float, Op>(out, {from.data(), sources.size()}, 0, length);
}

template <typename T, typename Op>
[[gnu::always_inline]] inline void reduce_block(Unaligned<T>* out, std::span<const void* const> sources,
                                                std::span<const TreeStep> steps, std::size_t begin, std::size_t length,
                                                Isa isa) {
  using A = typename Accumulator<T>::type;
  using Partial = typename Op::Partial;
  std::array<std::array<Unaligned<A>, block>, max_pending> pending;
  std::size_t n = 0;
  for (const TreeStep& step : steps) {
    const auto members = sources.subspan(step.first, step.sources);
    if constexpr (std::is_same_v<T, float16>) {
      reduce_float16_step<Partial>(pending[n++].data(), members, begin, length, isa);
    } else {
      reduce_in_registers<T, Partial>(pending[n++].data(), members, begin, length);
    }
    for (std::size_t merge = 0; merge < step.merges; ++merge) {
      auto* left = pending[--n - 1].data();
      const auto* right = pending[n].data();
      for (std::size_t i = 0; i < length; ++i) left[i].value = Partial::template combine<A>(left[i].value, right[i].value);
    }
  }
  auto* result = pending[0].data();
  const auto total = static_cast<A>(sources.size());
  if constexpr (std::is_same_v<T, float16>) {
    for (std::size_t i = 0; i < length; ++i) result[i].value = Op::template finish<A>(result[i].value, total);
    narrow(out + begin, result, length, 1.0F, isa);
  } else {
    for (std::size_t i = 0; i < length; ++i) {
      out[begin + i].value = Accumulator<T>::store(Op::template finish<A>(result[i].value, total));
    }
  }
}

template <typename T, typename Op>
void reduce_as(Unaligned<T>* out, std::span<const void* const> sources, std::size_t count, std::span<const std::size_t> groups,
               Isa isa) {
  std::vector<TreeStep> many;
  const TreeStep all{0, sources.size(), 0};
  std::span<const TreeStep> steps(&all, 1);
  if (groups.size() > 1 || sources.size() > Op::in_registers) {
    const std::size_t one = sources.size();
    add_steps(many, Op::in_registers, 0, groups.empty() ? std::span(&one, 1) : groups);
    steps = many;
  }
  if constexpr (!std::is_same_v<T, float16>) {
    if (steps.size() == 1) {
      return with_isa(isa, [&]() TNT_INLINE_LAMBDA { reduce_in_registers<T, Op>(out, sources, 0, count); });
    }
  }
  with_isa(isa, [&]() TNT_INLINE_LAMBDA {
    for (std::size_t begin = 0; begin < count; begin += block) {
      reduce_block<T, Op>(out, sources, steps, begin, std::min(block, count - begin), isa);
    }
  });
}

template <typename T>
void reduce_bits(void* out, std::span<const void* const> sources, std::size_t count, tnt_op_t op,
                 std::span<const std::size_t> groups, Isa isa) {
  auto* typed = static_cast<Unaligned<T>*>(out);
  switch (op) {
    case TNT_LAND: return reduce_as<T, Logical<And>>(typed, sources, count, groups, isa);
    case TNT_LOR: return reduce_as<T, Logical<Or>>(typed, sources, count, groups, isa);
    case TNT_LXOR: return reduce_as<T, Logical<Xor>>(typed, sources, count, groups, isa);
    case TNT_BAND: return reduce_as<T, And>(typed, sources, count, groups, isa);
    case TNT_BOR: return reduce_as<T, Or>(typed, sources, count, groups, isa);
    default: return reduce_as<T, Xor>(typed, sources, count, groups, isa);
  }
}

// Signed and unsigned integers have the same bits.
void reduce_bits(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                 std::span<const std::size_t> groups, Isa isa) {
  if (!is_integer(dtype)) {
    fail(TNT_INVALID_ARGUMENT, "{} needs an integer type, not {}", op_name(op), dtype_name(dtype));
  }
  switch (dtype_size(dtype)) {
    case 1: return reduce_bits<Narrow<std::uint8_t>>(out, sources, count, op, groups, isa);
    case 4: return reduce_bits<Narrow<std::uint32_t>>(out, sources, count, op, groups, isa);
    default: return reduce_bits<std::uint64_t>(out, sources, count, op, groups, isa);
  }
}

}  // namespace

void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, Isa isa,
            std::span<const std::size_t> groups) {
  if (!touches_memory((sources.size() + 1) * count * dtype_size(dtype))) return;
  if (needs_integers(op)) return reduce_bits(out, sources, count, dtype, op, groups, isa);
  dispatch(dtype, [&]<typename T>() {
    auto* typed = static_cast<Unaligned<T>*>(out);
    switch (op) {
      case TNT_SUM: return reduce_as<T, Sum>(typed, sources, count, groups, isa);
      case TNT_AVG: return reduce_as<T, Avg>(typed, sources, count, groups, isa);
      case TNT_MIN: return reduce_as<T, Min>(typed, sources, count, groups, isa);
      case TNT_MAX: return reduce_as<T, Max>(typed, sources, count, groups, isa);
      case TNT_PROD: return reduce_as<T, Prod>(typed, sources, count, groups, isa);
      default: break;
    }
    fail(TNT_INVALID_ARGUMENT, "{} is not a reduction", static_cast<int>(op));
  });
}

void divide(void* data, std::size_t count, tnt_dtype_t dtype, std::size_t n) {
  dispatch(dtype, [&]<typename T>() {
    using A = typename Accumulator<T>::type;
    if constexpr (std::is_same_v<A, T>) {
      auto* typed = static_cast<Unaligned<T>*>(data);
      for (std::size_t i = 0; i < count; ++i) typed[i].value = Avg::finish<A>(typed[i].value, static_cast<A>(n));
    } else {
      fail(TNT_INVALID_ARGUMENT, "sums that a mean is made of are not held in {}", dtype_name(dtype));
    }
  });
}

}  // namespace tnt
