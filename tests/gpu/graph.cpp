#include "gpu/graph.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_call.hpp"

namespace tnt::testing {

Graph::Graph(cudaStream_t stream, const std::function<void()>& enqueue, cudaStreamCaptureMode mode) {
  TNT_CUDA(cudaStreamBeginCapture(stream, mode));
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    throw;
  }
  TNT_CUDA(cudaStreamEndCapture(stream, &graph_));
  TNT_CUDA(cudaGraphInstantiateWithFlags(&executable_, graph_, 0));
}

Graph::~Graph() {
  cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

void Graph::replay(cudaStream_t stream) const { TNT_CUDA(cudaGraphLaunch(executable_, stream)); }

std::size_t Graph::kernels() const {
  std::size_t n = 0;
  TNT_CUDA(cudaGraphGetNodes(graph_, nullptr, &n));
  std::vector<cudaGraphNode_t> nodes(n);
  TNT_CUDA(cudaGraphGetNodes(graph_, nodes.data(), &n));
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    TNT_CUDA(cudaGraphNodeGetType(node, &type));
    return type == cudaGraphNodeTypeKernel;
  }));
}

}  // namespace tnt::testing
