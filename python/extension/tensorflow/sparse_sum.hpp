// Rows of a large, mostly zero table, as sorted indices and values; added in one fixed order.
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

}  // namespace tnt_tensorflow
