#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/host_side.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sum_order.cuh"
#include "kernels/cuda/transform.cuh"

namespace tnt::gpu {
namespace {

// The arrays are cut into chunks, which the thread blocks take in turn.
// 4 vectors of 16 bytes for each thread.
template <typename T>
inline constexpr std::uint64_t chunk = std::uint64_t{4} * threads * 16 / sizeof(T);

template <typename T>
[[nodiscard]] std::uint64_t chunks_of(std::uint64_t count) {
  return count / chunk<T> + (count % chunk<T> != 0 ? 1 : 0);
}

// Calls f(first element, elements) for each chunk of this block.
template <typename T, typename F>
__device__ __forceinline__ void for_each_chunk(std::uint64_t count, const F& f) {
  for (std::uint64_t i = blockIdx.x; i * chunk<T> < count; i += gridDim.x) {
    const std::uint64_t left = count - i * chunk<T>;
    f(i * chunk<T>, static_cast<std::uint32_t>(left < chunk<T> ? left : chunk<T>));
  }
}

struct Sources {  // passed by value: half a kilobyte of kernel arguments
  const std::byte* at[max_sources];
  int n;
};

// Elements in the accumulator's type.
template <typename T, unsigned n>
struct Values {
  AccumulatorType<T> value[n];

  friend __device__ __forceinline__ Values operator+(const Values& a, const Values& b) {
    Values sum;
    TNT_UNROLL
    for (unsigned i = 0; i < n; ++i) sum.value[i] = wrapping_add(a.value[i], b.value[i]);
    return sum;
  }
};

// One element of all sources.
template <typename T>
struct ElementTerms {
  using Pending = T;
  using Value = Values<T, 1>;
  const Sources& sources;
  std::uint64_t at;

  __device__ __forceinline__ T issue(int source) const { return load_element<T>(sources.at[source] + at * sizeof(T)); }
  __device__ __forceinline__ Value complete(int /*source*/, T x) const { return {{Accumulator<T>::load(x)}}; }
};

// One vector of all sources.
template <typename T, bool aligned>
struct UnitTerms {
  static constexpr unsigned elements = Unit<T, T>::elements;
  using Pending = typename UnalignedSource<16>::Pending;
  using Value = Values<T, elements>;
  const Sources& sources;
  std::uint64_t first;  // element at which the vectors begin
  std::uint32_t unit;

  __device__ __forceinline__ UnalignedSource<16> source(int index) const {
    return UnalignedSource<16>(sources.at[index] + first * sizeof(T));
  }
  __device__ __forceinline__ Pending issue(int index) const { return source(index).template issue<aligned>(unit); }
  __device__ __forceinline__ Value complete(int index, const Pending& pending_loads) const {
    T element[elements];
    const Vector<16> vector = source(index).template complete<aligned>(pending_loads);
    std::memcpy(element, &vector, sizeof(vector));
    Value value;
    TNT_UNROLL
    for (unsigned i = 0; i < elements; ++i) value.value[i] = Accumulator<T>::load(element[i]);
    return value;
  }
};

template <typename T, bool aligned>
__device__ __forceinline__ void reduce_units(std::byte* out, const Sources& sources, std::uint64_t first, std::uint32_t units) {
  using Terms = UnitTerms<T, aligned>;
  auto* to = reinterpret_cast<Vector<16>*>(out + first * sizeof(T));
  TNT_NO_UNROLL
  for (std::uint32_t unit = threadIdx.x; unit < units; unit += threads) {
    const typename Terms::Value sum = sum_of(Terms{sources, first, unit}, sources.n);
    T element[Terms::elements];
    TNT_UNROLL
    for (unsigned i = 0; i < Terms::elements; ++i) element[i] = Accumulator<T>::store(sum.value[i]);
    Vector<16> vector;
    std::memcpy(&vector, element, sizeof(vector));
    store(to + unit, vector);
  }
}

template <typename T>
__device__ __forceinline__ void reduce_chunk(std::byte* out, const Sources& sources, std::uint64_t first, std::uint32_t count) {
  constexpr unsigned elements = Unit<T, T>::elements;
  VectorSplit split = VectorSplit::of(out + first * sizeof(T), sizeof(T), 16, count);
  unsigned misaligned = 0;
  for (int i = 0; i < sources.n; ++i) misaligned |= misalignment(sources.at[i] + (first + split.head) * sizeof(T), 16);
  if (misaligned != 0) split.exclude_outer_units(elements);
  TNT_NO_UNROLL
  for (std::uint32_t i = threadIdx.x; i < split.head + split.tail; i += threads) {
    const std::uint64_t at = first + split.single(i, elements);
    const Values<T, 1> sum = sum_of(ElementTerms<T>{sources, at}, sources.n);
    store_element(out + at * sizeof(T), Accumulator<T>::store(sum.value[0]));
  }
  if (misaligned == 0) {
    reduce_units<T, true>(out, sources, first + split.head, split.units);
  } else {
    reduce_units<T, false>(out, sources, first + split.head, split.units);
  }
}

template <typename T>
__global__ void __launch_bounds__(threads) reduce_kernel(std::byte* out, const Sources sources, std::uint64_t count) {
  for_each_chunk<T>(count, [&](std::uint64_t first, std::uint32_t length) { reduce_chunk<T>(out, sources, first, length); });
}

}  // namespace

void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, Stream stream) {
  check_sources(n);
  if (count == 0) return;
  Sources copied = {};
  for (int i = 0; i < n; ++i) copied.at[i] = static_cast<const std::byte*>(sources[i]);
  copied.n = n;
  dispatch_wire(dtype, [&](auto element) {
    using T = decltype(element);
    const unsigned blocks = blocks_for(chunks_of<T>(count), 0);
    auto* to = static_cast<std::byte*>(out);
    TNT_LAUNCH(blocks, stream, (reduce_kernel<T>), to, copied, count);
  });
}

void load_reduce() {
  for_each_dtype([](auto element) { TNT_LOAD(reduce_kernel<decltype(element)>); });
}

}  // namespace tnt::gpu
