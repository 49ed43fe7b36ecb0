// The measurement: contenders take turns on the same buffers, until the median is known well enough.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

// One of those that are measured beside one another: does its operation once.
using Contender = std::function<void()>;

// For each contender its times; one iteration is one operation, its time the maximum over ranks. They are measured in turn, A B
// A B, each behind a barrier, so that a machine whose speed drifts drifts for all. Short operations are timed several at a
// time. Stops when every median's 95 % confidence interval is within options.target, or after options.max_time, or after
// options.iterations. Collective.
[[nodiscard]] std::vector<Times> measure(const std::vector<Contender>& contenders, const Options& options, const Team& team);

}  // namespace tnt::bench
