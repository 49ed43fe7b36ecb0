// The layout of a bucket: the positions of its tensors and its tiles. Made with the plan on the host, equal on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/dtype.hpp"
#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt::gpu {

struct TensorShape {
  std::size_t count = 0;
  tnt_dtype_t dtype = TNT_FLOAT32;
};

struct BucketLayout {
  std::vector<Tile> tiles;
  std::vector<std::size_t> slots;          // first element of each tensor in the bucket, at multiples of 16 bytes
  std::vector<std::uint32_t> first_tiles;  // the first tile of each tensor, then the number of tiles
  std::size_t count = 0;                   // elements of the bucket, padding included
  tnt_dtype_t wire = TNT_FLOAT32;
  int dtype = mixed_dtypes;  // the tnt_dtype_t of all tensors that are not empty, if they have one

  // on_device: the tiles in device memory. tensors: an array in host memory with an entry for each tensor.
  [[nodiscard]] BucketLaunch launch(const Tile* on_device, const TensorArgument* tensors, void* bucket) const;
};

// Places the tensors in order; those of 4 KiB or more begin at multiples of 128 bytes. A tensor of up to T bytes (in its own
// type or the wire type, whichever is larger) is one tile. A larger tensor is cut into tiles of T / 2 to T bytes of equal size,
// except for 128 elements and the remainder. T is a 256th of all bytes, so that a bucket of 1 MiB gives work to all
// multiprocessors, but 4 KiB at least and 16 KiB at most. An empty tensor has no tile. Throws TNT_INVALID_ARGUMENT if an
// integer tensor would have to be cast. Cost: O(tensors + tiles).
[[nodiscard]] BucketLayout make_layout(std::span<const TensorShape> tensors, tnt_dtype_t wire);

}  // namespace tnt::gpu
