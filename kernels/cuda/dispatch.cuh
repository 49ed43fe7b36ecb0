// Dispatch from a dtype to the device type: on the host for a bucket's type, in the kernel for a tensor's type. All elements of
// a block have one tensor type.
#pragma once

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/host_side.hpp"

namespace tnt::gpu {

// Calls f with an element of the wire type.
template <typename F>
void dispatch_wire(tnt_dtype_t wire, const F& f) {
  switch (wire) {
    case TNT_FLOAT32: return f(float{});
    case TNT_FLOAT64: return f(double{});
    case TNT_FLOAT16: return f(Float16{});
    case TNT_BFLOAT16: return f(Bfloat16{});
    case TNT_INT8: return f(std::int8_t{});
    case TNT_UINT8: return f(std::uint8_t{});
    case TNT_INT32: return f(std::int32_t{});
    case TNT_INT64: return f(std::int64_t{});
    case TNT_UINT32: return f(std::uint32_t{});
    case TNT_UINT64: return f(std::uint64_t{});
    case TNT_FLOAT8_E4M3: return f(Float8E4m3{});
    case TNT_FLOAT8_E5M2: return f(Float8E5m2{});
  }
  refuse_dtype(wire);
}

// Calls f with an element of each wire type.
template <typename F>
void for_each_dtype(const F& f) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16, TNT_BFLOAT16, TNT_INT8, TNT_UINT8, TNT_INT32,
                                  TNT_INT64, TNT_UINT32, TNT_UINT64, TNT_FLOAT8_E4M3, TNT_FLOAT8_E5M2}) {
    dispatch_wire(dtype, f);
  }
}

// Calls f with an element of a tensor's type. Integers travel unchanged (make_layout checks it).
template <typename Wire, typename F>
__device__ __forceinline__ void dispatch_tensor(std::uint32_t dtype, const F& f) {
  if constexpr (!is_floating<Wire>) {
    f(Wire{});
  } else {
    switch (dtype) {
      case TNT_FLOAT32: return f(float{});
      case TNT_FLOAT64: return f(double{});
      case TNT_FLOAT16: return f(Float16{});
      case TNT_BFLOAT16: return f(Bfloat16{});
      default: return;
    }
  }
}

}  // namespace tnt::gpu
