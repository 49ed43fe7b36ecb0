#include "kernels/cuda/arguments.hpp"

#include "common/error.hpp"
#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::gpu {

void refuse_dtype(tnt_dtype_t dtype) { fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype)); }

void check_sources(int n) {
  if (n >= 1 && n <= max_sources) return;
  fail(TNT_INVALID_ARGUMENT, "cannot reduce {} buffers on a GPU at once: 1 to {} can be", n, max_sources);
}

}  // namespace tnt::gpu
