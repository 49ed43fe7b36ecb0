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

}  // namespace tnt::bench
