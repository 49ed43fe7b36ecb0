// The plan: which tensors travel together, and in which order. Made once, equal on every rank, never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "common/dtype.hpp"

namespace tnt {

struct TensorSpec {
  std::string name;
  std::size_t count = 0;
  tnt_dtype_t dtype = TNT_FLOAT32;
  std::optional<int> owner = std::nullopt;  // the rank that needs the sum; none: all ranks do. The same for all tensors
  [[nodiscard]] bool is_needed_by(int rank) const noexcept { return owner.value_or(rank) == rank; }
};

// Tensors that are fused and travel in one dtype. tensors: indices in the order of the bucket, which is by owner.
struct Bucket {
  tnt_dtype_t dtype = TNT_FLOAT32;  // on the wire
  std::vector<std::size_t> tensors;
  std::size_t count = 0;
  [[nodiscard]] std::size_t bytes() const noexcept { return count * dtype_size(dtype); }
};

class Plan {
 public:
  // tensors: in the order of the layers. Buckets are filled in gradient_order, the order in which backward produces gradients.
  // A bucket is closed when it holds fusion_threshold bytes (0: one tensor each). The first bucket is closed at a quarter of
  // it, so that the wire is busy early. The last bucket is split, so that about a quarter of the threshold remains to be
  // reduced when backward ends. Buckets are numbered in the order in which they close.
  //
  // wire: the type in which wider floating-point tensors travel; none: every tensor travels in its own type. gradient_order:
  // every tensor once; empty: from the last to the first. Throws TNT_INVALID_ARGUMENT otherwise.
  Plan(std::vector<TensorSpec> tensors, std::size_t fusion_threshold, std::optional<tnt_dtype_t> wire = std::nullopt,
       std::vector<std::size_t> gradient_order = {});

  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t fusion_threshold() const noexcept { return fusion_threshold_; }
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const std::vector<std::size_t>& gradient_order() const noexcept { return gradient_order_; }
  [[nodiscard]] std::optional<tnt_dtype_t> wire() const noexcept { return wire_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] bool has_owners() const noexcept { return !tensors_.empty() && tensors_.front().owner.has_value(); }
  [[nodiscard]] std::string describe(std::size_t bucket) const;  // "bucket 0: 1.0 MiB, 14 tensors, dense_9/bias …"

 private:
  void split_last(std::size_t limit);

  std::vector<TensorSpec> tensors_;
  std::vector<std::size_t> gradient_order_;
  std::size_t fusion_threshold_;
  std::optional<tnt_dtype_t> wire_;
  std::vector<Bucket> buckets_;
};

// Collective. Throws TNT_MISMATCH, with the same message on all ranks, if a rank's plan or context differs from that of rank 0.
// The message names the rank, the tensor and the difference.
void compare_plans(const Plan& plan, const std::string& context, Communicator& comm, const CallContext& call);

}  // namespace tnt
