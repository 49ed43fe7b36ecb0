// A bucket of random tensors at random addresses, with the results expected from the host reference (kernels/cpu).
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "kernels/cuda/bucket_layout.hpp"
#include "simt/guarded.hpp"

namespace tnt::testing {

// The alignment of tensors.
enum class Misalignment {
  no,        // at multiples of 128 bytes
  elements,  // at any multiple of their element's size
  bytes      // anywhere
};

struct CaseOptions {
  tnt_dtype_t wire = TNT_FLOAT32;
  std::vector<gpu::TensorShape> tensors;
  Misalignment tensors_lie = Misalignment::elements;
  Misalignment bucket_lies = Misalignment::no;
  bool whole_numbers = false;  // everything is exact, including scales
  bool some_lie_in_bucket = false;
  unsigned seed = 0;
};

// Up to 8 tensors with 0, 1, odd and other numbers of elements that can be cast to the wire type.
[[nodiscard]] std::vector<gpu::TensorShape> random_tensors(tnt_dtype_t wire, std::mt19937& random);

class BucketCase {
 public:
  explicit BucketCase(const CaseOptions& options);

  // The launch with this case's memory.
  [[nodiscard]] gpu::BucketLaunch launch(std::uint32_t max_ctas = 0);

  // The expected contents of the bucket and the tensors.
  [[nodiscard]] std::vector<std::byte> packed() const;
  [[nodiscard]] std::vector<std::byte> unpacked(std::size_t tensor) const;

  // Compare everything, including guards.
  void expect_packed() const;
  void expect_unpacked(const std::vector<std::vector<std::byte>>& expected) const;

  CaseOptions options;
  gpu::BucketLayout layout;
  std::vector<Guarded> in;
  std::vector<Guarded> out;
  std::vector<gpu::TensorArgument> arguments;
  Guarded bucket;
  std::vector<std::byte> in_bucket;  // before pack
  std::vector<gpu::Statistics> statistics;
};

}  // namespace tnt::testing
