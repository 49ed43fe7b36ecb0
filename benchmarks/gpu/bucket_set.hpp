// The gradients of a model in device memory and their buckets, in more memory than the caches hold.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/gpu/memory.hpp"
#include "benchmarks/models.hpp"
#include "kernels/cuda/bucket_layout.hpp"

namespace tnt::bench {

struct Cut {
  std::string name;
  std::size_t least = 0;  // a bucket is closed at this many bytes of float32
  std::size_t most = 0;   // a bucket may not exceed this; larger tensors are left out
};

struct Variant {
  std::string name;
  tnt_dtype_t wire = TNT_FLOAT32;
  std::size_t misaligned = 0;  // offset of every tensor from its alignment, in elements
  bool statistics = false;
  std::uint32_t max_ctas = 0;
};

class BucketSet {
 public:
  // Throws Failure if the device has too little memory, or if no tensor fits.
  BucketSet(const Model& model, const Cut& cut, const Variant& variant);

  struct Tensor {
    std::byte* gradient;
    std::byte* slot;
    std::size_t bytes;
  };
  struct Bucket {  // a bucket of one copy of the model
    gpu::BucketLaunch launch;
    std::byte* gradients;  // the bucket's tensors, one after another
    std::byte* memory;     // the bucket
    std::size_t moved;     // bytes that packing reads and writes
    std::vector<Tensor> tensors;
  };
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] std::size_t tensors() const noexcept;
  [[nodiscard]] std::size_t moved() const noexcept;  // in all buckets

 private:
  void add_copy(const Model& model, const std::vector<std::vector<std::size_t>>& runs, const Variant& variant);

  std::vector<Memory> memory_;
  std::vector<gpu::BucketLayout> layouts_;
  std::vector<const gpu::Tile*> tiles_;
  std::deque<std::vector<gpu::TensorArgument>> arguments_;  // of each bucket, in host memory
  std::vector<Bucket> buckets_;
};

}  // namespace tnt::bench
