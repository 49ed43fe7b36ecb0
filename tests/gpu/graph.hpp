// A CUDA graph of the work enqueued on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace tnt::testing {

class Graph {
 public:
  // mode: which calls other threads may make during the capture.
  Graph(cudaStream_t stream, const std::function<void()>& enqueue,
        cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  void replay(cudaStream_t stream) const;
  [[nodiscard]] std::size_t kernels() const;  // the number of kernels that it launches

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace tnt::testing
