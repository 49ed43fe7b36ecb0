// How a bucket's tensors lie in it, and its cut into tiles: made once with the plan, on the host, the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.hpp"
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

// Tensors in their order, those of 4 KiB and more at multiples of 128 bytes. A tensor of up to 32 KiB, as it lies or as it
// travels, whichever is more, is one tile; a larger one is cut into tiles of 16 to 32 KiB, equal but for 128 elements and the
// remainder. An empty one has none. Throws TNT_INVALID_ARGUMENT if an integer would have to be cast. Cost: O(tensors + tiles).
[[nodiscard]] BucketLayout make_layout(std::span<const TensorShape> tensors, tnt_dtype_t wire);

}  // namespace tnt::gpu
