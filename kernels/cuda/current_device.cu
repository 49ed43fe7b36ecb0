// What the kernels can do on the current device, and their loading there.
#include <array>
#include <atomic>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/host_side.hpp"

namespace tnt::gpu {
namespace {

__global__ void probe_kernel() {}

// Code that the driver has made from PTX of an older architecture has no bulk copies, whatever the device can do.
bool compiled_with_bulk_copies() {
#if CUDART_VERSION >= 12000
  cudaFuncAttributes attributes;
  TNT_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe_kernel)));
  return attributes.ptxVersion >= 90;
#else
  return false;
#endif
}

}  // namespace

bool has_bulk_copies() {
  enum Answer : signed char { unknown, yes, no };
  static std::array<std::atomic<Answer>, 64> answers{};  // of each device, which launches ask for
  int device = 0;
  TNT_CUDA(cudaGetDevice(&device));
  const auto index = static_cast<std::size_t>(device);
  if (index >= answers.size()) return compiled_with_bulk_copies();
  Answer answer = answers[index];
  if (answer == unknown) answers[index] = answer = compiled_with_bulk_copies() ? yes : no;
  return answer == yes;
}

void load_kernels() {
  load_accumulate();
  load_pack();
  load_unpack();
  load_reduce();
  load_statistics();
}

std::uint32_t max_tensors_per_launch() {
  static const bool large = [] {
    int driver = 0;
    TNT_CUDA(cudaDriverGetVersion(&driver));
    return CUDART_VERSION >= 12010 && driver >= 12010;
  }();
  return large ? many_tensors : few_tensors;
}

}  // namespace tnt::gpu
