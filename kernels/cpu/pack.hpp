// Pack and unpack: copies between scattered tensors and one contiguous fused buffer, in chunks of any size, with scale and
// cast.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/dtype.hpp"
#include "kernels/cpu/copy.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// One tensor's contribution to a collective: scale * in is sent, and the result is written to out.
struct TensorView {
  const void* in = nullptr;  // not read if scale is 0
  void* out = nullptr;       // nullptr: the result is not wanted
  std::size_t count = 0;
  double scale = 1.0;
  std::optional<tnt_dtype_t> dtype = std::nullopt;  // of in and out; none: as the fused buffer
};

// Tensors that are treated as one vector of elements of dtype, the wire type. Tensors of another floating-point type are cast
// when they are packed (rounded once), and cast back when they are unpacked. The borders of the tensors are kept, so that any
// part is found in O(log tensors). A single tensor, as in a plain all_reduce, allocates nothing.
class FusedBuffer {
 public:
  FusedBuffer(std::span<const TensorView> views, tnt_dtype_t dtype);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  // Whether every tensor's type is wider than the wire type.
  [[nodiscard]] bool narrows() const noexcept;
  [[nodiscard]] tnt_dtype_t dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::span<const TensorView> views() const noexcept { return views_; }

  void pack(std::size_t begin, std::size_t count, void* to, Store store = Store::cached) const;
  void unpack(std::size_t begin, std::size_t count, const void* from, Store store = Store::cached) const;

  // The address of [begin, begin + count) of the input if packing would not change it: it is in one tensor, unscaled and of the
  // same type. Otherwise nullptr.
  [[nodiscard]] const void* in_place(std::size_t begin, std::size_t count) const noexcept;
  // The address of [begin, begin + count) of the output if unpacking would not change it. Otherwise nullptr.
  [[nodiscard]] void* out_in_place(std::size_t begin, std::size_t count) const noexcept;

 private:
  [[nodiscard]] tnt_dtype_t dtype_of(const TensorView& view) const noexcept { return view.dtype.value_or(dtype_); }
  template <typename Use>
  void for_each_part(std::size_t begin, std::size_t count, Use&& use) const;

  std::span<const TensorView> views_;
  tnt_dtype_t dtype_;
  std::size_t count_ = 0;
  std::vector<std::size_t> ends_;  // the element after each tensor's last; empty for a single tensor
};

// to[i] = scale * from[i], rounded once to the type of to (through float32 if the types differ and one has 16 bits). from is
// not read if scale is 0. from == to is allowed if the types are the same. Different types must be floating-point types.
void scale(void* to, tnt_dtype_t to_dtype, const void* from, tnt_dtype_t from_dtype, std::size_t count, double scale,
           Isa isa = best_isa());

}  // namespace tnt
