#include "benchmarks/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "benchmarks/buffers.hpp"
#include "benchmarks/statistics.hpp"

namespace tnt::bench {
namespace {

constexpr double shortest_sample_us = 20;  // reading the clock must cost less than 1 %
constexpr int max_operations = 64;         // in one sample
constexpr int samples_at_once = 10;        // between two checks of the confidence interval

double microseconds(std::int64_t begin_ns) { return static_cast<double>(tnt_clock_ns() - begin_ns) * 1e-3; }

double time_one(const Contender& contender, int operations, const Team& team) {
  team.barrier();
  const std::int64_t begin = tnt_clock_ns();
  for (int i = 0; i < operations; ++i) contender();
  return microseconds(begin) / operations;
}

struct Series {
  double first = 0;
  int operations = 1;
  std::vector<double> samples;  // maximum over ranks
};

void warm_up(Series& series, const Contender& contender, int times, const Team& team) {
  series.first = team.maximum(time_one(contender, 1, team));
  double once = series.first;
  for (int i = 0; i < times; ++i) once = team.maximum(time_one(contender, 1, team));
  series.operations = std::clamp(static_cast<int>(std::ceil(shortest_sample_us / std::max(once, 0.01))), 1, max_operations);
}

Times summarised(const Series& series) {
  std::vector<double> sorted = series.samples;
  std::sort(sorted.begin(), sorted.end());
  return {.iterations = sorted.size(),
          .min = sorted.front(),
          .p50 = median(sorted),
          .p95 = percentile(sorted, 95),
          .max = sorted.back(),
          .first = series.first};
}

}  // namespace

std::vector<Times> measure(const std::vector<Contender>& contenders, const Options& options, const Team& team) {
  std::vector<Series> all(contenders.size());
  for (std::size_t c = 0; c < contenders.size(); ++c) warm_up(all[c], contenders[c], options.warmup, team);

  const std::int64_t begin = tnt_clock_ns();
  bool done = false;
  while (!done) {
    const auto taken = static_cast<int>(all.front().samples.size());
    const int batch = options.iterations ? std::min(samples_at_once, *options.iterations - taken) : samples_at_once;
    std::vector<double> values;
    for (int i = 0; i < batch; ++i) {
      for (std::size_t c = 0; c < contenders.size(); ++c) values.push_back(time_one(contenders[c], all[c].operations, team));
    }
    values.push_back(microseconds(begin) * 1e-6);
    team.maximum(values);  // every rank now has the same numbers and makes the same decision
    for (std::size_t i = 0; i + 1 < values.size(); ++i) all[i % all.size()].samples.push_back(values[i]);
    if (options.iterations) {
      done = taken + batch >= *options.iterations;
    } else {
      const auto known = [&](const Series& series) { return confident(series.samples, options.target); };
      done = values.back() >= options.max_time || std::all_of(all.begin(), all.end(), known);
    }
  }
  std::vector<Times> times;
  for (const Series& series : all) times.push_back(summarised(series));
  return times;
}

// Measures from the first rank's start to the last rank's end, so that ranks on one core do not count twice.
double measure_bandwidth(const Team& team) {
  constexpr int tries = 7;
  const std::size_t bytes = std::max<std::size_t>(2 * last_level_cache_bytes(), std::size_t{32} << 20);
  const Pool from(bytes, 0, Cache::hot);
  const Pool to(bytes, 0, Cache::hot);
  std::memset(from.first(), 1, bytes);  // memory that was never written is one cached page of zeros
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    team.barrier();
    const std::int64_t begin = tnt_clock_ns();
    std::memcpy(to.first(), from.first(), bytes);  // of so many bytes: with streaming stores, the fastest way to copy
    const auto end = static_cast<double>(tnt_clock_ns());
    const double seconds = (team.maximum(end) + team.maximum(-static_cast<double>(begin))) * 1e-9;
    best = std::max(best, 2.0 * static_cast<double>(bytes) * team.ranks() / seconds);
  }
  return best;
}

}  // namespace tnt::bench
