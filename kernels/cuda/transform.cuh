// A block copies elements from one array to another and applies a function to each. The destination is aligned: its elements
// before the first vector and after the last are moved one by one, all others in vectors of 16 bytes of the wider side. A
// misaligned source is read in aligned vectors and shifted. Each thread issues 4 to 8 loads before its first store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/statistics.cuh"
#include "kernels/cuda/vectors.cuh"

namespace tnt::gpu {

// 16 bytes of the wider type and the same number of elements of the other: neighbouring threads access neighbouring memory.
template <typename To, typename From>
struct Unit {
  static constexpr unsigned elements = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  static constexpr int to_bytes = elements * sizeof(To);
  static constexpr int from_bytes = elements * sizeof(From);
  static constexpr unsigned batch = from_bytes == 16 ? 4 : 8;            // loads in flight; more would cost registers
  static constexpr bool has_vectors = to_bytes >= 4 && from_bytes >= 4;  // not float64 that travels in 8 bits
};

// An array split into a head, aligned vectors and a tail.
struct VectorSplit {
  std::uint32_t head;   // elements before the first vector; all elements if none is aligned
  std::uint32_t units;  // vectors
  std::uint32_t tail;   // elements after the last vector

  [[nodiscard]] static __device__ VectorSplit of(const std::byte* to, unsigned element_bytes, unsigned unit_bytes,
                                                 std::uint32_t count) {
    if (misalignment(to, element_bytes) != 0) return {count, 0, 0};
    const std::uint32_t head = (unit_bytes - misalignment(to, unit_bytes)) % unit_bytes / element_bytes;
    if (head >= count) return {count, 0, 0};
    const std::uint32_t unit_elements = unit_bytes / element_bytes;
    return {head, (count - head) / unit_elements, (count - head) % unit_elements};
  }

  // Moves the first and the last vector to the elements that are moved one by one.
  __device__ void exclude_outer_units(unsigned unit_elements) {
    if (units <= 2) {
      *this = {head + tail + units * unit_elements, 0, 0};
    } else {
      *this = {head + unit_elements, units - 2, tail + unit_elements};
    }
  }

  // The i-th of the elements that are moved one by one.
  [[nodiscard]] __device__ std::uint32_t single(std::uint32_t i, unsigned unit_elements) const {
    return i < head ? i : i + units * unit_elements;
  }
};

template <typename To, typename From, typename Function>
__device__ __forceinline__ Vector<Unit<To, From>::to_bytes> apply_to_unit(const Function& function,
                                                                          const Vector<Unit<To, From>::from_bytes>& in,
                                                                          StatisticsAccumulator& stats) {
  constexpr unsigned n = Unit<To, From>::elements;
  From from[n];
  To to[n];
  std::memcpy(from, &in, sizeof(in));
  TNT_UNROLL
  for (unsigned i = 0; i < n; ++i) to[i] = function(from[i]);
  if (stats.enabled()) stats.add_unit(to);
  Vector<Unit<To, From>::to_bytes> out;
  std::memcpy(&out, to, sizeof(out));
  return out;
}

template <typename To, typename From, typename Function>
__device__ __forceinline__ void transform_element(std::byte* to, const std::byte* from, std::size_t at,
                                                  const Function& function, StatisticsAccumulator& stats) {
  const To result = function(load_element<From>(from + at * sizeof(From)));
  store_element(to + at * sizeof(To), result);
  if (stats.enabled()) stats.add(result);
}

__device__ __forceinline__ std::uint32_t clamped(std::uint32_t x, std::uint32_t least, std::uint32_t most) {
  const std::uint32_t low = x < least ? least : x;
  return low < most ? low : most;
}

// Excludes the first and the last vector unless the source is aligned.
template <bool aligned, typename To, typename From, typename Function>
__device__ __forceinline__ void transform_units(std::byte* to, const std::byte* from, std::uint32_t units,
                                                const Function& function, StatisticsAccumulator& stats) {
  using U = Unit<To, From>;
  using In = UnalignedSource<U::from_bytes>;
  const In source(from);
  auto* target = reinterpret_cast<Vector<U::to_bytes>*>(to);
  constexpr std::uint32_t begin = aligned ? 0 : 1;
  const std::uint32_t end = aligned ? units : units - 1;
  if (begin >= end) return;
  for (std::uint32_t first = threadIdx.x; first < end; first += threads * U::batch) {
    typename In::Pending in[U::batch];
    TNT_UNROLL
    for (unsigned i = 0; i < U::batch; ++i) {  // without a branch: a thread without a unit reads another thread's
      const std::uint32_t unit = clamped(first + i * threads, begin, end - 1);
      in[i] = source.template issue<aligned>(unit);
    }
    TNT_UNROLL
    for (unsigned i = 0; i < U::batch; ++i) {
      const std::uint32_t unit = first + i * threads;
      if (unit != clamped(unit, begin, end - 1)) continue;
      store(target + unit, apply_to_unit<To, From>(function, source.template complete<aligned>(in[i]), stats));
    }
  }
}

// The vectors of transform, from their first element on.
template <typename To, typename From, typename Function>
__device__ __forceinline__ void transform_vectors(std::byte* to, const std::byte* from, std::uint32_t units,
                                                  const Function& function, StatisticsAccumulator& stats) {
  using U = Unit<To, From>;
  if (misalignment(from, U::from_bytes) == 0) return transform_units<true, To, From>(to, from, units, function, stats);

  // The first and the last unit are read one by one, by the thread that owns them.
  const auto transform_unit = [&](std::uint32_t unit) {
    if (threadIdx.x != unit % threads) return;
    const std::size_t first = std::size_t{unit} * U::elements;
    To result[U::elements];
    TNT_UNROLL
    for (unsigned i = 0; i < U::elements; ++i) {
      result[i] = function(load_element<From>(from + (first + i) * sizeof(From)));
      store_element(to + (first + i) * sizeof(To), result[i]);
    }
    if (stats.enabled()) stats.add_unit(result);
  };
  transform_unit(0);
  transform_units<false, To, From>(to, from, units, function, stats);
  if (units > 1) transform_unit(units - 1);
}

// to[i] = function(from[i]); the written values are added to the statistics. Each thread adds the same elements in the same
// order for any alignment of `from`.
template <typename To, typename From, typename Function>
__device__ __forceinline__ void transform(std::byte* to, const std::byte* from, std::uint32_t count, const Function& function,
                                          StatisticsAccumulator& stats) {
  using U = Unit<To, From>;
  VectorSplit split{count, 0, 0};
  if constexpr (U::has_vectors) split = VectorSplit::of(to, sizeof(To), U::to_bytes, count);
  TNT_NO_UNROLL
  for (std::uint32_t i = threadIdx.x; i < split.head + split.tail; i += threads) {
    transform_element<To, From>(to, from, split.single(i, U::elements), function, stats);
  }
  if constexpr (U::has_vectors) {
    if (split.units == 0) return;
    transform_vectors<To, From>(to + split.head * sizeof(To), from + split.head * sizeof(From), split.units, function, stats);
  }
}

// Adds function(from[i]) to the statistics and writes nothing.
template <typename To, typename From, typename Function>
__device__ void add_transformed(const std::byte* from, std::uint32_t count, const Function& function,
                                StatisticsAccumulator& stats) {
  for (std::uint32_t i = threadIdx.x; i < count; i += threads) {
    const To value = function(load_element<From>(from + i * sizeof(From)));
    stats.add(value);
  }
}

// to[0 .. bytes) = 0
__device__ inline void fill_zero(std::byte* to, std::size_t bytes) {
  const auto count = static_cast<std::uint32_t>(bytes);
  const VectorSplit split = VectorSplit::of(to, 1, 16, count);
  for (std::uint32_t i = threadIdx.x; i < split.head + split.tail; i += threads) to[split.single(i, 16)] = std::byte{0};
  auto* units = reinterpret_cast<Vector<16>*>(to + split.head);
  for (std::uint32_t i = threadIdx.x; i < split.units; i += threads) store(units + i, Vector<16>{});
}

}  // namespace tnt::gpu
