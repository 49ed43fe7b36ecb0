// The duration of work on a stream: the median of many runs, measured with CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace tnt::bench {

enum class Queue {
  held,  // the device starts when everything is enqueued: measures the device, however slow the host is
  free   // the device starts immediately, as for a caller
};

struct Cost {
  double us = 0;       // on the device
  double host_us = 0;  // to enqueue
};

// The cost of one of the n launches that pass enqueues. seconds: the approximate time for the whole measurement.
[[nodiscard]] Cost measure(const std::function<void()>& pass, std::size_t n, Queue queue, cudaStream_t stream, double seconds);

[[nodiscard]] double median_of(std::vector<double> values);  // 0 without values
[[nodiscard]] double percentile_of(std::vector<double> values, double percent);

[[nodiscard]] double now_us();  // of the host

// The number of kernels that enqueue launches on the stream, determined by capturing it.
[[nodiscard]] std::size_t kernels_in(const std::function<void()>& enqueue, cudaStream_t stream);

}  // namespace tnt::bench
