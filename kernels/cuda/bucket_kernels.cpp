// What of a launch the host decides: its kernel, and whether its arguments are valid.
#include "kernels/cuda/bucket_kernels.hpp"

#include <cstdint>

#include "common/error.hpp"
#include "kernels/cuda/host_side.hpp"

namespace tnt::gpu {
namespace {

constexpr std::uintptr_t vector_bytes = 16;

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % vector_bytes == 0; }

bool in_16_bits(int dtype) { return dtype == TNT_FLOAT16 || dtype == TNT_BFLOAT16; }

// The pairs of types that gradients have: float32 and 16-bit ones as they are, and float32 that travels in 16 bits.
bool has_lean_cast(int dtype, tnt_dtype_t wire) {
  if (dtype == wire) return dtype == TNT_FLOAT32 || in_16_bits(dtype);
  return dtype == TNT_FLOAT32 && in_16_bits(wire);
}

}  // namespace

KernelKind kernel_of(const BucketLaunch& launch, Direction direction) {
  if (launch.statistics != nullptr || launch.factor != nullptr || launch.dtype == mixed_dtypes || !aligned(launch.bucket))
    return KernelKind::general;
  if (is_limited(launch) && !has_bulk_copies()) return KernelKind::general;  // a lean block moves one tile otherwise
  bool scaled = false;
  for (std::uint32_t i = 0; i < launch.n_tensors; ++i) {
    const TensorArgument& tensor = launch.tensors[i];
    if (launch.first_tiles[i] == launch.first_tiles[i + 1]) continue;  // empty
    if (direction == Direction::unpack) {
      if (!aligned(tensor.out)) return KernelKind::general;
    } else if (tensor.scale != 0.0) {  // otherwise it is not read
      if (!aligned(tensor.in)) return KernelKind::general;
      scaled = scaled || (tensor.in != nullptr && tensor.scale != 1.0);
    }
  }
  if (launch.dtype == launch.wire && !scaled) return KernelKind::copy;
  return has_lean_cast(launch.dtype, launch.wire) ? KernelKind::cast : KernelKind::general;
}

void refuse_dtype(tnt_dtype_t dtype) { fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype)); }

void check_sources(int n) {
  if (n >= 1 && n <= max_sources) return;
  fail(TNT_INVALID_ARGUMENT, "cannot reduce {} buffers on a GPU at once: 1 to {} can be", n, max_sources);
}

}  // namespace tnt::gpu
