// An array of any element type that is read and written as double, and reductions of such arrays in double: the reference for
// collectives. It shares no code with the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tarantella/tarantella.h"

namespace tnt::testing {

inline constexpr tnt_dtype_t all_dtypes[] = {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16, TNT_INT8,
                                             TNT_UINT8,   TNT_INT32,   TNT_INT64,   TNT_UINT32,   TNT_UINT64};
inline constexpr tnt_op_t all_ops[] = {TNT_SUM, TNT_AVG, TNT_MIN, TNT_MAX, TNT_PROD};  // of every type
inline constexpr tnt_dtype_t integers[] = {TNT_INT8, TNT_UINT8, TNT_INT32, TNT_INT64, TNT_UINT32, TNT_UINT64};
inline constexpr tnt_op_t integer_ops[] = {TNT_LAND, TNT_LOR, TNT_LXOR, TNT_BAND, TNT_BOR, TNT_BXOR};  // of integers alone

class Array {
 public:
  Array(tnt_dtype_t dtype, std::size_t count);

  [[nodiscard]] tnt_dtype_t dtype() const { return dtype_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] const void* data() const { return bytes_.data(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  [[nodiscard]] double get(std::size_t index) const;
  void set(std::size_t index, double value);  // rounded to the nearest value of the type, ties to even
  [[nodiscard]] Array part(std::size_t begin, std::size_t count) const;
  void place(std::size_t begin, const Array& other);

  bool operator==(const Array& other) const = default;

 private:
  tnt_dtype_t dtype_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

// An array of value(i) for the first `period` elements, which is then repeated, so that arrays of 100 000s of elements are
// cheap under sanitizers too. The period is prime, so the library's limits fall on different values.
inline constexpr std::size_t period = 1021;
[[nodiscard]] Array repeated(tnt_dtype_t dtype, std::size_t count, const std::function<double(std::size_t)>& value);

// Small whole numbers that depend on seed and index. Sums and products of up to 8 of them are exact in every dtype, so there is
// one correct result in any order of the sum.
[[nodiscard]] Array exact_values(tnt_dtype_t dtype, std::size_t count, unsigned seed);

// The reduction of repeated arrays.
[[nodiscard]] Array reduced(std::span<const Array> arrays, tnt_op_t op);

}  // namespace tnt::testing
