#include "benchmarks/measure.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace tnt::bench
