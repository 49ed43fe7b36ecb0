#include "benchmarks/gpu/measure.hpp"

#include <algorithm>
#include <chrono>

#include "benchmarks/gpu/kernels.hpp"
#include "benchmarks/gpu/memory.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t max_queued = 600;  // launches; CUDA queues about a thousand, then the host waits
constexpr double launch_us = 6.0;        // an upper bound for one launch
constexpr double min_batch_us = 1000.0;  // long enough to make the events' cost negligible
constexpr std::size_t min_batches = 11;
constexpr std::size_t max_batches = 400;

struct Batch {
  const std::function<void()>& pass;
  std::size_t passes;
  std::size_t launches;
  Queue queue;
  cudaStream_t stream;
  CudaEvent begin{};
  CudaEvent end{};

  [[nodiscard]] Cost run() const {
    if (queue == Queue::held) compute(100.0 + launch_us * static_cast<double>(launches), stream);
    begin.record(stream);
    const double before = now_us();
    for (std::size_t i = 0; i < passes; ++i) pass();
    const double host = now_us() - before;
    end.record(stream);
    TNT_CUDA(cudaStreamSynchronize(stream));
    const auto n = static_cast<double>(launches);
    return {.us = end.microseconds_since(begin) / n, .host_us = host / n};
  }
};

}  // namespace

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double percentile_of(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto place = static_cast<std::size_t>(percent / 100.0 * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(place), values.end());
  return values[place];
}

double median_of(std::vector<double> values) { return percentile_of(std::move(values), 50); }

Cost measure(const std::function<void()>& pass, std::size_t n, Queue queue, cudaStream_t stream, double seconds) {
  const Batch once{pass, 1, n, queue, stream};
  static_cast<void>(once.run());
  const double pass_us = std::max(once.run().us * static_cast<double>(n), 0.1);
  const auto wanted = static_cast<std::size_t>(min_batch_us / pass_us) + 1;
  const std::size_t passes = std::max<std::size_t>(1, std::min(wanted, max_queued / n));
  const Batch batch{pass, passes, passes * n, queue, stream};
  std::vector<double> device;
  std::vector<double> host;
  const double deadline = now_us() + seconds * 1e6;
  while (device.size() < min_batches || (device.size() < max_batches && now_us() < deadline)) {
    const Cost times = batch.run();
    device.push_back(times.us);
    host.push_back(times.host_us);
  }
  return {.us = median_of(device), .host_us = median_of(host)};
}

std::size_t kernels_in(const std::function<void()>& enqueue, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  TNT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  TNT_CUDA(cudaStreamEndCapture(stream, &graph));
  std::size_t n = 0;
  TNT_CUDA(cudaGraphGetNodes(graph, nullptr, &n));
  std::vector<cudaGraphNode_t> nodes(n);
  TNT_CUDA(cudaGraphGetNodes(graph, nodes.data(), &n));
  std::size_t kernels = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    TNT_CUDA(cudaGraphNodeGetType(node, &type));
    kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
  }
  TNT_CUDA(cudaGraphDestroy(graph));
  return kernels;
}

}  // namespace tnt::bench
