// Lean kernels, for buckets of one type that are aligned and need no statistics: a block moves one tile and ends. They have 32
// registers, so that 8 blocks of 256 threads share a multiprocessor, and 4 loads of 16 bytes in flight for each thread: 128 KiB
// for each multiprocessor. A test keeps them free of local memory (tests/simt/machine_code_test.cpp).
#pragma once

#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/kernel_arguments.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {

// Scales and converts elements.
template <typename To, typename From>
struct LeanCast {
  using Source = From;
  using Target = To;
  static constexpr unsigned elements = Unit<To, From>::elements;
  // for each multiprocessor; a vector of 8 halves that are scaled needs more than 40 registers
  static constexpr int blocks = sizeof(To) == 2 && sizeof(From) == 2 ? 5 : 8;
  using In = Vector<Unit<To, From>::from_bytes>;
  using Out = Vector<Unit<To, From>::to_bytes>;

  Scale<To, From> scale;

  explicit __device__ LeanCast(double factor = 1.0) : scale(factor) {}
  static __device__ __forceinline__ std::uint32_t parts(std::uint32_t /*bytes*/) { return 1; }
  __device__ __forceinline__ Out unit(const In& in) const {
    From from[elements];
    To to[elements];
    std::memcpy(from, &in, sizeof(in));
    TNT_UNROLL
    for (unsigned i = 0; i < elements; ++i) to[i] = scale(from[i]);
    Out out;
    std::memcpy(&out, to, sizeof(out));
    return out;
  }
  __device__ __forceinline__ To element(From x) const { return scale(x); }
};

// Any type, as bytes.
struct LeanCopy {
  using Source = std::byte;
  using Target = std::byte;
  static constexpr unsigned elements = 16;
  static constexpr int blocks = 8;
  using In = Vector<16>;
  using Out = Vector<16>;

  explicit __device__ LeanCopy(double /*scale*/ = 1.0) {}
  static __device__ __forceinline__ std::uint32_t parts(std::uint32_t bytes) { return bytes; }
  __device__ __forceinline__ Out unit(const In& in) const { return in; }
  __device__ __forceinline__ std::byte element(std::byte x) const { return x; }
};

// to and from are aligned to 16 bytes. One batch moves a tile. Threads without a unit load nothing.
template <typename Move>
__device__ __forceinline__ void lean_move(std::byte* to, const std::byte* from, std::uint32_t count, const Move& move) {
  constexpr std::uint32_t batch = 4;
  static_assert(max_tile_bytes == batch * threads * 16);
  const std::uint32_t units = count / Move::elements;
  const std::uint32_t tail = units * Move::elements + threadIdx.x;
  if (tail < count) {
    reinterpret_cast<typename Move::Target*>(to)[tail] =
        move.element(reinterpret_cast<const typename Move::Source*>(from)[tail]);
  }
  const auto* in = reinterpret_cast<const typename Move::In*>(from) + threadIdx.x;
  auto* out = reinterpret_cast<typename Move::Out*>(to) + threadIdx.x;
  typename Move::In loaded[batch];
  TNT_UNROLL
  for (std::uint32_t i = 0; i < batch; ++i) {
    if (threadIdx.x + i * threads < units) loaded[i] = load_once(in + i * threads);
  }
  TNT_UNROLL
  for (std::uint32_t i = 0; i < batch; ++i) {
    if (threadIdx.x + i * threads < units) store(out + i * threads, move.unit(loaded[i]));
  }
}

template <typename T>
__device__ __forceinline__ void lean_zero(std::byte* to, std::uint32_t count) {
  TNT_NO_UNROLL
  for (std::uint32_t i = threadIdx.x; i < count; i += threads) reinterpret_cast<T*>(to)[i] = T{};
}

// Move: LeanCast<Wire, Own>, or LeanCopy, whose parts are the bytes of an element. A tensor whose address is null is in the
// bucket already.
template <typename Move, std::uint32_t capacity>
__global__ void __launch_bounds__(threads, resident_blocks(Move::blocks))
    lean_pack_kernel(TNT_PARAMETER(KernelArguments<capacity>) arguments, std::uint32_t bytes) {
  const std::uint32_t parts = Move::parts(bytes);
  using Target = typename Move::Target;
  const Tile tile = load_tile(arguments.tiles + blockIdx.x);
  const TensorSide& tensor = arguments.of(tile);
  std::byte* const to = arguments.bucket + tile.slot * parts * sizeof(Target);
  const std::uint32_t count = tile.count * parts;
  lean_zero<Target>(to + std::size_t{count} * sizeof(Target), tile.padding * parts);
  if (tensor.scale == 0.0) return lean_zero<Target>(to, count);
  if (tensor.address == nullptr) return;
  lean_move(to, tensor.address + tile.first * parts * sizeof(typename Move::Source), count, Move(tensor.scale));
}

// Move: LeanCast<Own, Wire> or LeanCopy. A tensor whose address is null is not wanted.
template <typename Move, std::uint32_t capacity>
__global__ void __launch_bounds__(threads, resident_blocks(Move::blocks))
    lean_unpack_kernel(TNT_PARAMETER(KernelArguments<capacity>) arguments, std::uint32_t bytes) {
  const std::uint32_t parts = Move::parts(bytes);
  const Tile tile = load_tile(arguments.tiles + blockIdx.x);
  std::byte* const out = arguments.of(tile).address;
  if (out == nullptr) return;
  lean_move(out + tile.first * parts * sizeof(typename Move::Target),
            arguments.bucket + tile.slot * parts * sizeof(typename Move::Source), tile.count * parts, Move());
}

[[nodiscard]] inline std::uint32_t bytes_of(tnt_dtype_t wire) {
  std::uint32_t bytes = 0;
  dispatch_wire(wire, [&](auto element) { bytes = sizeof(element); });
  return bytes;
}

// Calls f with an element of the wire type, in which a bucket of float32 travels.
template <typename F>
void dispatch_half(tnt_dtype_t wire, const F& f) {
  switch (wire) {
    case TNT_FLOAT16: return f(Float16{});
    case TNT_BFLOAT16: return f(Bfloat16{});
    default: refuse_dtype(wire);
  }
}

}  // namespace tnt::gpu
