// Sums of one element from each of n buffers. Loops over these functions keep the terms in registers and vectorise.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include "kernels/cpu/half.hpp"

namespace tnt {

// For a loop in which an element of out is written after the same elements of the buffers were read, and depends on no others.
#define TNT_ELEMENTS_ARE_INDEPENDENT _Pragma("GCC ivdep")

// The maximum number of terms with a loop of their own; each loop is code for every type and instruction set.
constexpr std::size_t max_summed_in_registers = 8;

// Calls body with a std::index_sequence of length `terms`, from n to max.
template <std::size_t max, std::size_t n = 1, typename Body>
[[gnu::always_inline]] inline void with_indices(std::size_t terms, const Body& body) {
  if constexpr (n < max) {
    if (terms > n) return with_indices<max, n + 1>(terms, body);
  }
  body(std::make_index_sequence<n>());
}

// Pointers to the buffers' elements from begin on. Without a loop: GCC would keep the array in memory and would not vectorise
// reads through it.
template <typename T, std::size_t... i>
[[gnu::always_inline]] inline auto element_pointers(std::span<const void* const> buffers, std::size_t begin,
                                                    std::index_sequence<i...>) {
  return std::array{static_cast<const Unaligned<T>*>(buffers[i]) + begin...};
}

// The sum of terms [0, n) in order; term(i) is the i-th.
template <typename Op, std::size_t n, typename Term>
[[gnu::always_inline]] inline auto in_order(const Term& term) {
  if constexpr (n == 1) {
    return term(0);
  } else {
    const auto before = in_order<Op, n - 1>(term);
    return Op::template combine<decltype(term(0))>(before, term(n - 1));
  }
}

// The sum of terms [first, first + n) in a tree: the left half has the largest power of two below n terms.
template <std::size_t first, std::size_t n, typename Term>
[[gnu::always_inline]] inline auto in_tree(const Term& term) {
  if constexpr (n == 1) {
    return term(first);
  } else {
    constexpr std::size_t half = std::bit_ceil(n) / 2;
    const auto left = in_tree<first, half>(term);
    return left + in_tree<first + half, n - half>(term);
  }
}

}  // namespace tnt
