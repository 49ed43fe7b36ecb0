#include "kernels/cuda/bucket_kernels.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt::gpu {

std::uint32_t max_tensors_per_launch() {
  static const bool large = [] {
    int driver = 0;
    TNT_CUDA(cudaDriverGetVersion(&driver));
    return CUDART_VERSION >= 12010 && driver >= 12010;
  }();
  return large ? many_tensors : few_tensors;
}

}  // namespace tnt::gpu
