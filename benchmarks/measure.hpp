// The measurement: contenders take turns on the same buffers until the median is known with enough confidence.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// One of the contenders: performs its operation once.
using Contender = std::function<void()>;

// Returns the times of each contender. One iteration is one operation, and its time is the maximum over ranks. Contenders are
// measured in turn, A B A B, each after a barrier, so that drifting speed affects all of them. Short operations are timed
// several at a time. Stops when every median's 95 % confidence interval is within options.target, after options.max_time, or
// after options.iterations. Collective.
[[nodiscard]] std::vector<Times> measure(const std::vector<Contender>& contenders, const Options& options, const Team& team);

// The memory limit: the bandwidth when all ranks copy at the same time.
//
// Bytes per second, read plus written, of all ranks together, for copies of buffers that exceed the caches; the best of several
// tries. Takes about 0.3 s. Collective.
[[nodiscard]] double measure_bandwidth(const Team& team);

}  // namespace tnt::bench
