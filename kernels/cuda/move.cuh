// A block moves elements from one array to another and does something to each on the way. Aligned on the destination: its
// elements before the first vector and after the last go one by one, all others in vectors of 16 bytes of the wider side, the
// source's put together if they lie askew. Each thread begins 4 to 8 loads before it stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/statistics.cuh"
#include "kernels/cuda/vectors.cuh"

namespace tnt::gpu {

// 16 bytes of the wider type, and as many elements of the other: neighbouring threads read and write neighbouring memory.
template <typename To, typename From>
struct Unit {
  static constexpr unsigned elements = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  static constexpr int to_bytes = elements * sizeof(To);
  static constexpr int from_bytes = elements * sizeof(From);
  static constexpr unsigned batch = from_bytes == 16 ? 4 : 8;  // loads in flight; more than that costs registers
};

// An array cut into a head, aligned vectors and a tail.
struct Cut {
  std::uint32_t head;   // elements before the first vector; all of them if no element is aligned
  std::uint32_t units;  // vectors
  std::uint32_t tail;   // elements after the last vector

  __device__ Cut(const std::byte* to, unsigned element_bytes, unsigned unit_bytes, std::uint32_t count)
      : head(count), units(0), tail(0) {
    if (misalignment(to, element_bytes) != 0) return;
    const std::uint32_t to_first = (unit_bytes - misalignment(to, unit_bytes)) % unit_bytes / element_bytes;
    if (to_first >= count) return;
    head = to_first;
    units = (count - head) / (unit_bytes / element_bytes);
    tail = count - head - units * (unit_bytes / element_bytes);
  }

  // The i-th of the elements that go one by one.
  [[nodiscard]] __device__ std::uint32_t single(std::uint32_t i, unsigned unit_elements) const {
    return i < head ? i : i + units * unit_elements;
  }
};

template <typename To, typename From, typename Function>
__device__ __forceinline__ To apply(const Function& function, From x, To old) {
  if constexpr (std::is_invocable_v<Function, From, To>) {
    return function(x, old);
  } else {
    return function(x);
  }
}

template <typename To, typename From, typename Function>
__device__ __forceinline__ Vector<Unit<To, From>::to_bytes> apply_to_unit(const Function& function,
                                                                          const Vector<Unit<To, From>::from_bytes>& in,
                                                                          const Vector<Unit<To, From>::to_bytes>& old,
                                                                          Share& share) {
  constexpr unsigned n = Unit<To, From>::elements;
  From from[n];
  To to[n];
  std::memcpy(from, &in, sizeof(in));
  std::memcpy(to, &old, sizeof(old));
  TNT_UNROLL
  for (unsigned i = 0; i < n; ++i) to[i] = apply(function, from[i], to[i]);
  TNT_UNROLL
  for (unsigned i = 0; i < n; ++i) share.add(to[i]);
  Vector<Unit<To, From>::to_bytes> out;
  std::memcpy(&out, to, sizeof(out));
  return out;
}

template <bool aligned, typename To, typename From, typename Function>
__device__ __forceinline__ void move_units(Vector<Unit<To, From>::to_bytes>* to,
                                           const Source<From, Unit<To, From>::from_bytes>& source, std::uint32_t units,
                                           const Function& function, Share& share) {
  using U = Unit<To, From>;
  constexpr bool reads_old = std::is_invocable_v<Function, From, To>;
  for (std::uint32_t first = threadIdx.x; first < units; first += threads * U::batch) {
    typename Source<From, U::from_bytes>::Begun in[U::batch];
    Vector<U::to_bytes> old[U::batch] = {};
    TNT_UNROLL
    for (unsigned i = 0; i < U::batch; ++i) {
      const std::uint32_t unit = first + i * threads < units ? first + i * threads : units - 1;
      in[i] = source.template begin<aligned>(unit);
      if constexpr (reads_old) old[i] = load_once(to + unit);
    }
    TNT_UNROLL
    for (unsigned i = 0; i < U::batch; ++i) {
      const std::uint32_t unit = first + i * threads;
      if (unit >= units) break;
      store(to + unit, apply_to_unit<To, From>(function, source.template end<aligned>(unit, in[i]), old[i], share));
    }
  }
}

// to[i] = function(from[i]), or function(from[i], to[i]) if the function takes two; what is written is added to the share.
template <typename To, typename From, typename Function>
__device__ __forceinline__ void move(std::byte* to, const std::byte* from, std::uint32_t count, const Function& function,
                                     Share& share) {
  using U = Unit<To, From>;
  const Cut cut(to, sizeof(To), U::to_bytes, count);
  for (std::uint32_t i = threadIdx.x; i < cut.head + cut.tail; i += threads) {
    const std::size_t at = cut.single(i, U::elements);
    To old = {};
    if constexpr (std::is_invocable_v<Function, From, To>) old = load_element<To>(to + at * sizeof(To));
    const To result = apply(function, load_element<From>(from + at * sizeof(From)), old);
    store_element(to + at * sizeof(To), result);
    share.add(result);
  }
  if (cut.units == 0) return;
  auto* units = reinterpret_cast<Vector<U::to_bytes>*>(to + cut.head * sizeof(To));
  const Source<From, U::from_bytes> source(from + cut.head * sizeof(From), cut.units);
  if (source.is_aligned()) {
    move_units<true, To, From>(units, source, cut.units, function, share);
  } else {
    move_units<false, To, From>(units, source, cut.units, function, share);
  }
}

// to[0 .. bytes) = 0
__device__ inline void fill_zero(std::byte* to, std::size_t bytes) {
  const auto count = static_cast<std::uint32_t>(bytes);
  const Cut cut(to, 1, 16, count);
  for (std::uint32_t i = threadIdx.x; i < cut.head + cut.tail; i += threads) to[cut.single(i, 16)] = std::byte{0};
  auto* units = reinterpret_cast<Vector<16>*>(to + cut.head);
  for (std::uint32_t i = threadIdx.x; i < cut.units; i += threads) store(units + i, Vector<16>{});
}

}  // namespace tnt::gpu
