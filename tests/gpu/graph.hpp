// A CUDA graph of what is enqueued on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace tnt::testing {

class Graph {
 public:
  // mode: what other threads may do meanwhile.
  Graph(cudaStream_t stream, const std::function<void()>& enqueue,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  void replay(cudaStream_t stream) const;
  [[nodiscard]] std::size_t kernels() const;  // that it launches

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace tnt::testing
