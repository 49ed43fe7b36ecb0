// Partial sums of a fused buffer on their way: the type in which they are held, and how they begin and end.
#pragma once

#include <cstddef>

#include "comm/network/messages/staging.hpp"
#include "kernels/cpu/pack.hpp"

namespace tnt {

// Sums of 16-bit types are float32 until the end, so that they are rounded once; what travels then has twice the bytes. Means
// are divided at the end.
class PartialSums {
 public:
  // Not means of integers of up to 32 bits: their sums need 64.
  [[nodiscard]] static bool can(tnt_dtype_t dtype, tnt_op_t op) noexcept {
    return op != TNT_AVG || (dtype != TNT_INT8 && dtype != TNT_UINT8 && dtype != TNT_INT32 && dtype != TNT_UINT32);
  }
  PartialSums(const FusedBuffer& fused, tnt_op_t op, std::size_t members);

  [[nodiscard]] tnt_dtype_t dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }                // bytes of a sum
  [[nodiscard]] std::size_t result_size() const noexcept { return result_size_; }  // bytes of an element of the result
  [[nodiscard]] bool are_results() const noexcept { return size_ == result_size_; }

  // Contributions are rounded to the type of the buffer, then widened.
  void pack(std::size_t first, std::size_t count, std::byte* to, StagingPool& staging) const;
  // to = lower + upper (or the operation): the sum of the lower ranks is the left operand. to may be one of them.
  void combine(std::byte* to, const std::byte* lower, const std::byte* upper, std::size_t count) const;
  // Elements of the result from sums. The same memory for both if are_results().
  void finish(std::byte* result, std::byte* sums, std::size_t count) const;

 private:
  const FusedBuffer& fused_;
  tnt_op_t op_;
  std::size_t members_;
  tnt_dtype_t dtype_;
  std::size_t size_;
  std::size_t result_size_;
};

}  // namespace tnt
