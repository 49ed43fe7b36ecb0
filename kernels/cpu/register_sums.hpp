// Sums of one element from each of n buffers. Loops over these functions keep the terms in registers and vectorise.
#pragma once

#include <algorithm>
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
constexpr std::size_t max_in_registers = 8;

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

// The number of terms in the left half of the tree over n > 1 terms. With 2^k the largest power of two <= n, the first
// 2 (n - 2^k) terms are combined in pairs, as the first step of recursive doubling does. The tree is binary over the 2^k
// results and remaining terms, neighbours first: (0 + 1) + (2 + 3), and ((0 + 1) + 2) + (3 + 4) for five. Both halves are such
// trees. If the terms are groups of 2^j, each group is a subtree, and the results of the groups form such a tree themselves.
[[nodiscard]] constexpr std::size_t left_terms(std::size_t n) noexcept {
  const std::size_t half = std::bit_floor(n) / 2;
  return half + std::min(half, n - 2 * half);
}

// The tree over terms [first, first + n); term(i) is the i-th.
template <std::size_t first, std::size_t n, typename Term, typename Combine>
[[gnu::always_inline]] inline auto in_tree(const Term& term, const Combine& combine) {
  if constexpr (n == 1) {
    return term(first);
  } else {
    constexpr std::size_t left = left_terms(n);
    const auto before = in_tree<first, left>(term, combine);
    return combine(before, in_tree<first + left, n - left>(term, combine));
  }
}

}  // namespace tnt
