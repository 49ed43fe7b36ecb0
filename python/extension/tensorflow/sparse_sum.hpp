// Rows of a large, mostly zero table, as indices and values; added in one fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace tnt_tensorflow {

// values: width numbers for each index.
template <typename T>
struct Rows {
  std::vector<std::int64_t> indices;
  std::vector<T> values;
};

// Returns each index once, in ascending order, with the sum of its rows in the order of the input. Cost: n log n.
template <typename T>
Rows<T> merged(const std::int64_t* indices, std::size_t n, const T* values, std::size_t width) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return indices[a] < indices[b]; });
  Rows<T> rows;
  rows.indices.reserve(n);
  rows.values.reserve(n * width);
  for (const std::size_t at : order) {
    const T* row = values + at * width;
    if (rows.indices.empty() || rows.indices.back() != indices[at]) {
      rows.indices.push_back(indices[at]);
      rows.values.insert(rows.values.end(), row, row + width);
    } else {
      T* sum = rows.values.data() + rows.values.size() - width;
      for (std::size_t i = 0; i < width; ++i) sum[i] += row[i];
    }
  }
  return rows;
}

// The rows of both, each once, in ascending order as theirs are. Cost: a read and a write of all.
template <typename T>
Rows<T> added(const Rows<T>& left, const Rows<T>& right, std::size_t width) {
  Rows<T> sum;
  sum.indices.reserve(left.indices.size() + right.indices.size());
  sum.values.reserve(left.values.size() + right.values.size());
  const auto append = [&](const Rows<T>& from, std::size_t row) {
    const auto begin = from.values.begin() + static_cast<std::ptrdiff_t>(row * width);
    sum.indices.push_back(from.indices[row]);
    sum.values.insert(sum.values.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  };
  std::size_t l = 0;
  std::size_t r = 0;
  while (l < left.indices.size() || r < right.indices.size()) {
    const bool has_left = l < left.indices.size();
    const bool has_right = r < right.indices.size();
    const bool takes_left = has_left && (!has_right || left.indices[l] <= right.indices[r]);
    const bool takes_right = has_right && (!has_left || right.indices[r] <= left.indices[l]);
    append(takes_left ? left : right, takes_left ? l : r);
    if (takes_left && takes_right) {
      T* const row = sum.values.data() + sum.values.size() - width;
      for (std::size_t i = 0; i < width; ++i) row[i] += right.values[r * width + i];
    }
    l += takes_left ? 1 : 0;
    r += takes_right ? 1 : 0;
  }
  return sum;
}

// The rows of all ranks, one rank after another.
template <typename T>
Rows<T> joined(const std::vector<Rows<T>>& ranks) {
  Rows<T> all;
  for (const Rows<T>& rows : ranks) {
    all.indices.insert(all.indices.end(), rows.indices.begin(), rows.indices.end());
    all.values.insert(all.values.end(), rows.values.begin(), rows.values.end());
  }
  return all;
}

// Of n ranks from the first on: the sum in the tree in which all_reduce adds up ranks (tnt_op_t in tarantella.h).
template <typename T>
Rows<T> tree_sum(const Rows<T>* ranks, std::size_t n, std::size_t width) {
  if (n == 1) return ranks[0];
  std::size_t half = 1;
  while (4 * half <= n) half *= 2;
  const std::size_t left = half + std::min(half, n - 2 * half);
  return added(tree_sum(ranks, left, width), tree_sum(ranks + left, n - left, width), width);
}

}  // namespace tnt_tensorflow
