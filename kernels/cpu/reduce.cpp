#include "kernels/cpu/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/half.hpp"
#include "kernels/cpu/half_block.hpp"
#include "kernels/cpu/register_sums.hpp"

namespace tnt {
namespace {

constexpr std::size_t block = 1024;  // accumulators of one block: at most 8 KiB, a quarter of the L1 cache

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

// combine: adds one source. finish: completes a result of n sources. in_registers: the maximum number of sources whose
// reduction has its own loop.
struct Sum {
  static constexpr std::size_t in_registers = max_summed_in_registers;
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
  static constexpr std::size_t in_registers = 2;
  template <typename A>
  static A combine(A a, A b) noexcept {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN in any source is kept: x != x is false for other values.
struct Min : Prod {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (b < a || b != b) ? b : a;
  }
};
struct Max : Prod {
  template <typename A>
  static A combine(A a, A b) noexcept {
    return (a < b || b != b) ? b : a;
  }
};

struct Tree : Sum {};  // uses in_tree instead of in_order

template <typename T, typename Op, typename Out, std::size_t... i>
[[gnu::always_inline]] inline void reduce_sources(Unaligned<Out>* out, std::span<const void* const> sources, std::size_t begin,
                                                  std::size_t length, std::index_sequence<i...> indices) {
  using A = typename Accumulator<T>::type;
  constexpr std::size_t n = sizeof...(i);
  const auto from = element_pointers<T>(sources, begin, indices);
  TNT_ELEMENTS_ARE_INDEPENDENT
  for (std::size_t at = 0; at < length; ++at) {
    const auto term = [&](std::size_t source) TNT_INLINE_LAMBDA -> A { return Accumulator<T>::load(from[source][at].value); };
    if constexpr (std::is_same_v<Op, Tree>) {
      out[at].value = Accumulator<Out>::store(in_tree<0, n>(term));
    } else {
      out[at].value = Accumulator<Out>::store(Op::template finish<A>(in_order<Op, n>(term), static_cast<A>(n)));
    }
  }
}

// For at most Op::in_registers sources.
template <typename T, typename Op, typename Out>
[[gnu::always_inline]] inline void reduce_in_registers(Unaligned<Out>* out, std::span<const void* const> sources,
                                                       std::size_t begin, std::size_t length) {
  with_indices<Op::in_registers>(
      sources.size(), [&](auto indices) TNT_INLINE_LAMBDA { reduce_sources<T, Op>(out, sources, begin, length, indices); });
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

// Converts in blocks, because the compiler does not generate the conversion instructions in the loops above.
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
    if (sources.size() <= Op::in_registers) return reduce_in_registers<T, Op>(out, sources, 0, count);
    for (std::size_t begin = 0; begin < count; begin += block) {
      reduce_block<T, Op>(out, sources, begin, std::min(block, count - begin));
    }
  });
}

// The tree: groups of sources are summed in registers, and groups are added like a binary counter.
constexpr std::size_t group = Tree::in_registers;
constexpr std::size_t tree_block = 256;  // small enough that one sum for each level stays in the L1 cache
constexpr std::size_t levels = 16;       // of the binary counter
constexpr std::size_t max_tree_sources = group << levels;

// Converts first, as reduce_float16_block does.
[[gnu::always_inline]] inline void sum_float16_group(Unaligned<float>* out, std::span<const void* const> sources,
                                                     std::size_t begin, std::size_t length, Isa isa) {
  std::array<std::array<Unaligned<float>, tree_block>, group> wide;
  std::array<const void*, group> from{};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    widen(wide[i].data(), static_cast<const Unaligned<float16>*>(sources[i]) + begin, length, isa);
    from[i] = wide[i].data();
  }
  reduce_in_registers<float, Tree>(out, {from.data(), sources.size()}, 0, length);
}

template <typename A>
[[gnu::always_inline]] inline void add_below(Unaligned<A>* sum, const Unaligned<A>* left, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) sum[i].value = left[i].value + sum[i].value;
}

// pending[k] is a sum of 2^k groups that waits for its neighbour. At the end, a sum without a neighbour is passed up.
template <typename T>
[[gnu::always_inline]] inline void reduce_tree_block(Unaligned<T>* out, std::span<const void* const> sources, std::size_t begin,
                                                     std::size_t length, Isa isa) {
  using A = typename Accumulator<T>::type;
  std::array<std::array<Unaligned<A>, tree_block>, levels> pending;
  std::array<Unaligned<A>, tree_block> sum;
  const std::size_t groups = (sources.size() + group - 1) / group;
  for (std::size_t index = 0; index < groups; ++index) {
    const auto members = sources.subspan(index * group, std::min(group, sources.size() - index * group));
    if constexpr (std::is_same_v<T, float16>) {
      sum_float16_group(sum.data(), members, begin, length, isa);
    } else {
      reduce_in_registers<T, Tree>(sum.data(), members, begin, length);
    }
    std::size_t level = 0;
    for (; (index >> level & 1) != 0; ++level) add_below(sum.data(), pending[level].data(), length);
    if (index + 1 < groups) std::copy_n(sum.data(), length, pending[level].data());
  }
  // the lowest set bit of the number of groups is sum; the other set bits are pending sums
  for (std::size_t waiting = groups & (groups - 1); waiting != 0; waiting &= waiting - 1)
    add_below(sum.data(), pending[std::countr_zero(waiting)].data(), length);
  if constexpr (std::is_same_v<T, float16>) {
    narrow(out + begin, sum.data(), length, 1.0F, isa);
  } else {
    for (std::size_t i = 0; i < length; ++i) out[begin + i].value = Accumulator<T>::store(sum[i].value);
  }
}

template <typename T>
void reduce_in_tree(Unaligned<T>* out, std::span<const void* const> sources, std::size_t count, Isa isa) {
  constexpr bool wraps = std::is_integral_v<typename Accumulator<T>::type>;
  if (wraps || sources.size() <= 2) return reduce_as<T, Sum>(out, sources, count, isa);  // the order does not matter
  if constexpr (!wraps) {
    if (sources.size() > max_tree_sources)
      fail(TNT_UNSUPPORTED, "a tree over {} ranks: at most {}", sources.size(), max_tree_sources);
    with_isa(isa, [&]() TNT_INLINE_LAMBDA {
      if constexpr (!std::is_same_v<T, float16>) {
        if (sources.size() <= group) return reduce_in_registers<T, Tree>(out, sources, 0, count);
      }
      for (std::size_t begin = 0; begin < count; begin += tree_block) {
        reduce_tree_block(out, sources, begin, std::min(tree_block, count - begin), isa);
      }
    });
  }
}

}  // namespace

void reduce(void* out, std::span<const void* const> sources, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, Isa isa) {
  dispatch(dtype, [&]<typename T>() {
    auto* typed = static_cast<Unaligned<T>*>(out);
    if (op == tree_sum) return reduce_in_tree(typed, sources, count, isa);
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
