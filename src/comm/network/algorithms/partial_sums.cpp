#include "comm/network/algorithms/partial_sums.hpp"

#include <array>

#include "kernels/cpu/reduce.hpp"

namespace tnt {

PartialSums::PartialSums(const FusedBuffer& fused, tnt_op_t op, std::size_t members)
    : fused_(fused),
      op_(op),
      members_(members),
      dtype_(dtype_size(fused.dtype()) == 2 ? TNT_FLOAT32 : fused.dtype()),
      size_(dtype_size(dtype_)),
      result_size_(dtype_size(fused.dtype())) {}

void PartialSums::pack(std::size_t first, std::size_t count, std::byte* to, StagingPool& staging) const {
  if (are_results()) return fused_.pack(first, count, to);
  const StagingBuffer narrow = staging.acquire(count * result_size_);
  fused_.pack(first, count, narrow.get());
  scale(to, dtype_, narrow.get(), fused_.dtype(), count, 1.0);
}

void PartialSums::combine(std::byte* to, const std::byte* lower, const std::byte* upper, std::size_t count) const {
  const std::array<const void*, 2> both{lower, upper};
  if (count > 0) reduce(to, both, count, dtype_, op_ == TNT_AVG ? TNT_SUM : op_);
}

void PartialSums::finish(std::byte* result, std::byte* sums, std::size_t count) const {
  if (op_ == TNT_AVG) divide(sums, count, dtype_, members_);
  if (!are_results()) scale(result, fused_.dtype(), sums, dtype_, count, 1.0);
}

}  // namespace tnt
