#include "benchmarks/rows.hpp"

#include <algorithm>

#include "benchmarks/report.hpp"
#include "benchmarks/shape.hpp"

namespace tnt::bench {
std::vector<Row> planned_rows(const Options& options, int ranks) {
  std::vector<bool> places;
  if (options.place != Place::in) places.push_back(false);
  if (options.place != Place::out && has_in_place(options.collective)) places.push_back(true);
  const std::vector<tnt_op_t> ops = reduces(options.collective) ? options.ops : std::vector<tnt_op_t>{TNT_SUM};
  std::vector<Row> rows;
  for (const tnt_dtype_t dtype : options.dtypes) {
    for (const tnt_op_t op : ops) {
      if (!has_op(dtype, op)) continue;
      for (const Size& size : options.sizes) {
        for (const bool in_place : places) {
          const std::size_t element = tnt_dtype_size(dtype);
          const Shape shape = shape_of(options.collective, size.bytes, element, ranks, 0);
          rows.push_back({.collective = options.collective,
                          .ranks = ranks,
                          .bytes = elements_of(options.collective, size.bytes, element, ranks) * element,
                          .count = shape.count,
                          .label = size.label,
                          .dtype = dtype,
                          .op = op,
                          .root = rooted(options.collective) ? options.root : -1,
                          .in_place = in_place,
                          .cache = options.cache,
                          .unalign = options.unalign});
        }
      }
    }
  }
  return rows;
}

Problem problem_of(const Row& row, int rank) {
  const Shape shape = shape_of(row.collective, row.bytes, tnt_dtype_size(row.dtype), row.ranks, rank);
  return {.collective = row.collective,
          .ranks = row.ranks,
          .rank = rank,
          .count = shape.count,
          .dtype = row.dtype,
          .op = row.op,
          .root = std::max(row.root, 0),
          .seed = 1};
}

void add_bandwidth(Row& row, std::optional<double> bytes_per_second) {
  const double seconds = row.times.p50 * 1e-6;
  if (row.bytes == 0 || seconds <= 0) return;
  const auto bytes = static_cast<double>(row.bytes);
  row.algbw_gbps = bytes / seconds * 1e-9;
  row.busbw_gbps = *row.algbw_gbps * busbw_factor(row.collective, row.ranks);
  const double traffic = min_traffic(row.collective, bytes, row.ranks, row.in_place);
  if (bytes_per_second && traffic > 0) row.limit_percent = 100.0 * traffic / *bytes_per_second / seconds;
}

}  // namespace tnt::bench
