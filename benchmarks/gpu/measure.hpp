// How long work on a stream takes: the median of many runs, by CUDA's events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace tnt::bench {

enum class Queue {
  held,  // the device begins when all is enqueued: what the device takes, however slow the host is
  free   // the device begins at once, as for a caller
};

struct Cost {
  double us = 0;       // on the device
  double host_us = 0;  // to enqueue
};

// Of one of the n launches that pass enqueues. seconds: for all of it, about.
[[nodiscard]] Cost measure(const std::function<void()>& pass, std::size_t n, Queue queue, cudaStream_t stream, double seconds);

[[nodiscard]] double median_of(std::vector<double> values);  // 0 of none
[[nodiscard]] double percentile_of(std::vector<double> values, double percent);

[[nodiscard]] double now_us();  // of the host

// Kernels that are launched by what enqueue puts on the stream; by capturing it.
[[nodiscard]] std::size_t kernels_in(const std::function<void()>& enqueue, cudaStream_t stream);

}  // namespace tnt::bench
