// The sum over ranks, or over the shards of a batch, in a tree: the reference for results that have the same bits on any number
// of ranks. It works level by level, where the library uses halves or counts, and shares no code with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "support/array.hpp"

namespace tnt::testing {

// As many pairs of the first terms are added as are needed for a power of two to be left; then neighbours are, level by level.
template <typename A>
[[nodiscard]] A tree_sum_of(std::vector<A> terms) {
  std::size_t leaves = 1;
  while (2 * leaves <= terms.size()) leaves *= 2;
  for (std::size_t pairs = terms.size() - leaves, i = 0; i < pairs; ++i) {
    terms[i] = terms[i] + terms[i + 1];
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  while (terms.size() > 1) {
    std::vector<A> above;
    for (std::size_t i = 0; i < terms.size(); i += 2) above.push_back(terms[i] + terms[i + 1]);
    terms = above;
  }
  return terms[0];
}

using Groups = std::vector<std::vector<std::size_t>>;  // indices of terms

// The sum of each group, then the sum of these.
template <typename A>
[[nodiscard]] A tree_sum_of(const std::vector<A>& terms, const Groups& groups) {
  std::vector<A> sums;
  for (const auto& group : groups) {
    std::vector<A> members;
    for (const std::size_t index : group) members.push_back(terms[index]);
    sums.push_back(tree_sum_of(members));
  }
  return tree_sum_of(sums);
}

[[nodiscard]] inline Groups one_group(std::size_t n) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return {all};
}

// In double for float64 and for integers (exact for those of exact_values), else in float, rounded once.
[[nodiscard]] inline Array tree_sum_of_arrays(std::span<const Array> arrays, const Groups& groups) {
  const bool in_float =
      arrays[0].dtype() == TNT_FLOAT32 || arrays[0].dtype() == TNT_FLOAT16 || arrays[0].dtype() == TNT_BFLOAT16;
  Array result(arrays[0].dtype(), arrays[0].count());
  for (std::size_t i = 0; i < result.count(); ++i) {
    std::vector<float> narrow;
    std::vector<double> wide;
    for (const Array& array : arrays) {
      wide.push_back(array.get(i));
      narrow.push_back(static_cast<float>(array.get(i)));
    }
    result.set(i, in_float ? static_cast<double>(tree_sum_of(narrow, groups)) : tree_sum_of(wide, groups));
  }
  return result;
}
[[nodiscard]] inline Array tree_sum_of_arrays(std::span<const Array> arrays) {
  return tree_sum_of_arrays(arrays, one_group(arrays.size()));
}

// Values whose sum depends on the order; small values for integers.
[[nodiscard]] inline Array disorderly_values(tnt_dtype_t dtype, std::size_t count, unsigned seed) {
  if (std::count(std::begin(integers), std::end(integers), dtype) > 0) {
    return exact_values(dtype, count, seed);
  }
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Array result(dtype, count);
  for (std::size_t i = 0; i < count; ++i) result.set(i, std::ldexp(normal(random), static_cast<int>(random() % 12) - 6));
  return result;
}

[[nodiscard]] inline std::vector<Array> disorderly_arrays(std::size_t n, tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(disorderly_values(dtype, count, static_cast<unsigned>(i + 1)));
  return result;
}

}  // namespace tnt::testing
