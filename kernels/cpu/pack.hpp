// Pack and unpack: scattered tensors to and from one contiguous run, in any chunks, with the scale and the cast to the run's
// element type fused in.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/cpu/copy.hpp"
#include "kernels/cpu/isa.hpp"

namespace tnt {

// One tensor's part in a collective: scale * in goes out to the other ranks, the result comes back into out.
struct TensorView {
  const void* in = nullptr;  // not read if scale is 0
  void* out = nullptr;       // nullptr: the result is not wanted
  std::size_t count = 0;
  double scale = 1.0;
  std::optional<tnt_dtype_t> dtype = std::nullopt;  // of in and out; none: the run's
};

// A run of pieces seen as one vector of elements of dtype, the type in which it travels: pieces of another floating-point type
// are cast when they are packed, rounded once, and back when they are unpacked. Keeps the pieces' borders, so that any part of
// the run is found in O(log pieces); one piece, as of a plain all_reduce, allocates nothing.
class FusedBuffer {
 public:
  FusedBuffer(std::span<const TensorView> views, tnt_dtype_t dtype);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  // Whether every piece is of a type with more bits than the run's.
  [[nodiscard]] bool narrows() const noexcept;
  [[nodiscard]] tnt_dtype_t dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::span<const TensorView> views() const noexcept { return views_; }

  void pack(std::size_t begin, std::size_t count, void* to, Store store = Store::cached) const;
  void unpack(std::size_t begin, std::size_t count, const void* from, Store store = Store::cached) const;

  // Where [begin, begin + count) of the input lies as it is to be packed, if it lies in one piece and unscaled; else nullptr.
  [[nodiscard]] const void* in_place(std::size_t begin, std::size_t count) const noexcept;

 private:
  [[nodiscard]] tnt_dtype_t dtype_of(const TensorView& view) const noexcept { return view.dtype.value_or(dtype_); }
  template <typename Use>
  void for_each_part(std::size_t begin, std::size_t count, Use&& use) const;

  std::span<const TensorView> views_;
  tnt_dtype_t dtype_;
  std::size_t count_ = 0;
  std::vector<std::size_t> ends_;  // element after each piece's last; empty for one piece
};

// to[i] = scale * from[i], rounded once to the type of to (by way of float32 where the two types differ and one has 16 bits);
// from is not read if scale is 0. from == to is allowed if the types are the same. Different types: floating-point ones.
void scale(void* to, tnt_dtype_t to_dtype, const void* from, tnt_dtype_t from_dtype, std::size_t count, double scale,
           Isa isa = best_isa());

}  // namespace tnt
