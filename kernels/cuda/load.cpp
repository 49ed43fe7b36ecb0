#include "kernels/cuda/load.hpp"

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::gpu {

void load_kernels() {
  load_accumulate();
  load_pack();
  load_unpack();
  load_reduce();
  load_statistics();
}

}  // namespace tnt::gpu
