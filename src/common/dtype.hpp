// Element types: size, name, and dispatch to the C++ type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/error.hpp"
#include "tarantella/tarantella.h"

namespace tnt {

// 16-bit floating-point storage types; arithmetic is done in float (kernels/cpu/half.hpp).
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

[[nodiscard]] bool is_dtype(tnt_dtype_t dtype) noexcept;           // one that tensors have
[[nodiscard]] bool is_float8(tnt_dtype_t dtype) noexcept;          // one in which gradients travel, and no tensor's
[[nodiscard]] std::size_t dtype_size(tnt_dtype_t dtype) noexcept;  // 0 for an invalid dtype
[[nodiscard]] const char* dtype_name(tnt_dtype_t dtype) noexcept;
[[nodiscard]] bool is_integer(tnt_dtype_t dtype) noexcept;
[[nodiscard]] bool is_op(tnt_op_t op) noexcept;  // one of tarantella.h
// Logical and bitwise operations, which integers alone have.
[[nodiscard]] bool needs_integers(tnt_op_t op) noexcept;
[[nodiscard]] const char* op_name(tnt_op_t op) noexcept;

// Calls f.template operator()<T>() for the type T of dtype.
template <typename F>
decltype(auto) dispatch(tnt_dtype_t dtype, F&& f) {
  switch (dtype) {
    case TNT_FLOAT32: return f.template operator()<float>();
    case TNT_FLOAT64: return f.template operator()<double>();
    case TNT_FLOAT16: return f.template operator()<float16>();
    case TNT_BFLOAT16: return f.template operator()<bfloat16>();
    case TNT_INT8: return f.template operator()<std::int8_t>();
    case TNT_UINT8: return f.template operator()<std::uint8_t>();
    case TNT_INT32: return f.template operator()<std::int32_t>();
    case TNT_INT64: return f.template operator()<std::int64_t>();
    case TNT_UINT32: return f.template operator()<std::uint32_t>();
    case TNT_UINT64: return f.template operator()<std::uint64_t>();
    case TNT_FLOAT8_E4M3:
    case TNT_FLOAT8_E5M2: break;
  }
  fail(TNT_INVALID_ARGUMENT, "{} is not the dtype of a tensor", static_cast<int>(dtype));
}

}  // namespace tnt
