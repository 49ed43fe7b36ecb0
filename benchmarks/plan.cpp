#include "benchmarks/plan.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "benchmarks/buffers.hpp"
#include "benchmarks/rows.hpp"
#include "benchmarks/shape.hpp"
#include "benchmarks/sizes.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t around = 192;  // bytes of guards and alignment around each buffer

bool of_model(const Options& options) {
  return options.collective == Collective::bucket || options.collective == Collective::overlap;
}

std::size_t measuring(const Options& options, int ranks) {
  std::size_t most = 0;
  for (const Size& size : options.sizes) {
    if (of_model(options)) {
      // the gradients, the library's buckets, and the buckets of a reference library
      most = std::max(most, size.bytes * (options.against ? 3 : 2));
      continue;
    }
    for (const tnt_dtype_t dtype : options.dtypes) {
      const std::size_t element = tnt_dtype_size(dtype);
      const Shape shape = shape_of(options.collective, size.bytes, element, ranks, ranks - 1);  // the largest share
      const auto pool = [&](std::size_t elements) {
        return pool_bytes((elements + options.unalign) * element, options.cache, last_level_cache_bytes());
      };
      most = std::max(most, pool(shape.in) + pool(shape.out));
    }
  }
  return most;
}

template <typename T>
std::string names(const std::vector<T>& values) {
  std::vector<std::string> words;
  for (const T value : values) words.emplace_back(name(value));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string checks(const Options& options) {
  std::vector<const char*> on;
  if (options.check_exact) on.push_back("exact");
  if (options.check_accuracy) on.push_back("accuracy");
  if (options.check_repeat) on.push_back("repeat");
  const std::string runs = options.check_runs > 1 ? fmt::format(", {} times", options.check_runs) : "";
  return on.empty() ? "off" : fmt::format("{}{}", fmt::join(on, ", "), runs);
}

std::string sizes(const Options& options) {
  if (!options.model.empty()) return fmt::format("the gradients of {}, {} bytes", options.model, options.sizes.front().bytes);
  const auto [least, most] = std::minmax_element(options.sizes.begin(), options.sizes.end(),
                                                 [](const Size& a, const Size& b) { return a.bytes < b.bytes; });
  return fmt::format("{}, from {} to {}", options.sizes.size(), format_size(least->bytes), format_size(most->bytes));
}

std::string mebibytes(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::size_t pool_bytes(std::size_t buffer_bytes, Cache cache, std::size_t cache_bytes) {
  const std::size_t stride = buffer_bytes + around;
  if (cache == Cache::hot) return stride;
  return std::max<std::size_t>(1, (2 * cache_bytes + stride - 1) / stride) * stride;
}

std::size_t memory_needed(const Options& options, int ranks) {
  constexpr std::size_t min_copied_bytes = std::size_t{32} << 20;
  // measuring the limit copies a buffer of two caches before anything else is allocated
  const std::size_t limit = options.measure_limit ? 2 * std::max(2 * last_level_cache_bytes(), min_copied_bytes) : 0;
  return static_cast<std::size_t>(ranks) * std::max(limit, measuring(options, ranks));
}

void check_memory(const Options& options, int ranks, std::size_t available_bytes) {
  const std::size_t needed = memory_needed(options, ranks);
  if (needed <= available_bytes) return;
  throw Failure(
      fmt::format("{} with {} {} needs {} of memory, this machine has {}: take smaller sizes (-e), fewer --ranks, --cache hot "
                  "or --limit off",
                  name(options.collective), ranks, ranks == 1 ? "rank" : "ranks", mebibytes(needed),
                  mebibytes(available_bytes)),
      2);
}

std::size_t rows_of(const Options& options) {
  if (of_model(options)) return options.sizes.size();
  return planned_rows(options, 1).size() * options.backends.size();
}

void print_plan(const Options& options, int ranks, std::FILE* file) {
  const auto line = [file](const char* what, const std::string& value) { fmt::print(file, "{:<12}{}\n", what, value); };
  line("collective", name(options.collective));
  line("ranks", std::to_string(ranks));
  line("backends",
       fmt::format("{}{}", fmt::join(options.backends, ", "), options.against ? ", against " + *options.against : ""));
  if (options.collective != Collective::barrier) {
    line("sizes", sizes(options));
    line("types", names(options.dtypes));
  }
  if (reduces(options.collective)) line("operations", names(options.ops));
  if (!of_model(options) && options.collective != Collective::barrier) {
    line("place", options.place == Place::both ? "out of place and in place"
                  : options.place == Place::in ? "in place"
                                               : "out of place");
    line("cache", fmt::format("{}, {} of last level", name(options.cache), mebibytes(last_level_cache_bytes())));
  }
  line("checks", checks(options));
  const std::size_t rows = rows_of(options);
  line("rows", options.iterations
                   ? fmt::format("{}, {} iterations each", rows, *options.iterations)
                   : fmt::format("{}, at most {} s each, until {} % sure", rows, options.max_time, 100 * options.target));
  const std::size_t memory = memory_needed(options, ranks);
  line("memory", fmt::format("{} in all, {} a rank", mebibytes(memory), mebibytes(memory / static_cast<std::size_t>(ranks))));
}

}  // namespace tnt::bench
