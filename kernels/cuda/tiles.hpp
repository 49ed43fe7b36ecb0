// How a bucket's tensors lie in it, and its cut into tiles: made once with the plan, on the host, the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::gpu {

struct TensorShape {
  std::size_t count = 0;
  tnt_dtype_t dtype = TNT_FLOAT32;
};

struct BucketLayout {
  std::vector<Tile> tiles;
  std::vector<std::size_t> slots;  // element of the bucket at which each tensor begins: at a multiple of 16 bytes
  std::size_t count = 0;           // elements of the bucket, padding included
};

[[nodiscard]] BucketLayout lay_out(std::span<const TensorShape> tensors, tnt_dtype_t wire);

}  // namespace tnt::gpu
