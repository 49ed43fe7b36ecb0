// Aligned vectors of 4, 8 or 16 bytes from any address. A misaligned vector is combined from the two aligned vectors that
// contain it. Nothing outside the requested range is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.cuh"

namespace tnt::gpu {

template <int n>
struct alignas(n) Vector {
  static constexpr int words = n / 4;
  std::uint32_t word[words];
};

// Bypasses the L1 cache, because nothing is read twice. Does not use the read-only path, because a kernel may write where it
// reads.
template <int n>
__device__ __forceinline__ Vector<n> load_once(const Vector<n>* from) {
#if defined(__CUDA_ARCH__)
  Vector<n> v;
  const auto address = __cvta_generic_to_global(from);
  if constexpr (n == 16) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
  } else if constexpr (n == 8) {
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(address));
  } else {
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(address));
  }
  return v;
#else
  return TNT_AT(from);
#endif
}

// Through the L1 cache, because the neighbouring thread reads the same vector.
template <int n>
__device__ __forceinline__ Vector<n> load(const Vector<n>* from) {
#if defined(__CUDA_ARCH__)
  Vector<n> v;
  const auto address = __cvta_generic_to_global(from);
  if constexpr (n == 16) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address));
  } else if constexpr (n == 8) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(address));
  } else {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(address));
  }
  return v;
#else
  return TNT_AT(from);
#endif
}

template <int n>
__device__ __forceinline__ void store(Vector<n>* to, const Vector<n>& v) {
#if defined(__CUDA_ARCH__)
  const auto address = __cvta_generic_to_global(to);
  if constexpr (n == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
  } else if constexpr (n == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(address), "r"(v.word[0]), "r"(v.word[1]) : "memory");
  } else {
    asm volatile("st.global.u32 [%0], %1;" : : "l"(address), "r"(v.word[0]) : "memory");
  }
#else
  TNT_AT(to) = v;
#endif
}

[[nodiscard]] __device__ __forceinline__ unsigned misalignment(const void* address, unsigned alignment) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % alignment);
}

// One element at any address: as a whole if it is aligned, else byte by byte.
template <typename T>
__device__ __forceinline__ T load_element(const std::byte* from) {
  if (misalignment(from, alignof(T)) == 0) return *reinterpret_cast<const T*>(from);
  std::byte bytes[sizeof(T)];
  TNT_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(T)); ++i) bytes[i] = from[i];
  T element;
  std::memcpy(&element, bytes, sizeof(T));
  return element;
}

template <typename T>
__device__ __forceinline__ void store_element(std::byte* to, T element) {
  if (misalignment(to, alignof(T)) == 0) {
    *reinterpret_cast<T*>(to) = element;
    return;
  }
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, &element, sizeof(T));
  TNT_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(T)); ++i) to[i] = bytes[i];
}

// The n bytes from byte `offset` < n of low on, where high follows low. Words are selected in steps, because registers cannot
// be indexed at run time.
template <int n>
__device__ __forceinline__ Vector<n> shifted(const Vector<n>& low, const Vector<n>& high, unsigned offset) {
  constexpr int words = Vector<n>::words;
  std::uint32_t word[2 * words];
  TNT_UNROLL
  for (int i = 0; i < words; ++i) {
    word[i] = low.word[i];
    word[words + i] = high.word[i];
  }
  TNT_UNROLL
  for (int step = words / 2; step > 0; step /= 2) {
    const bool skip = (offset / 4 & static_cast<unsigned>(step)) != 0;
    TNT_UNROLL
    for (int i = 0; i + step < 2 * words; ++i) word[i] = skip ? word[i + step] : word[i];
  }
  Vector<n> result;
  TNT_UNROLL
  for (int i = 0; i < words; ++i) result.word[i] = __funnelshift_r(word[i], word[i + 1], offset % 4 * 8);
  return result;
}

// Consecutive vectors of n bytes from any address on. A misaligned vector is combined from the two aligned vectors that contain
// it. The first and the last vector of an array must not be read this way, because it reads beyond the array. Reading has two
// steps, so that a thread can issue several loads before it needs the first.
template <int n>
class UnalignedSource {
 public:
  explicit __device__ UnalignedSource(const std::byte* begin)
      : offset_(misalignment(begin, n)), aligned_(reinterpret_cast<const Vector<n>*>(begin - offset_)) {}

  struct Pending {
    Vector<n> low;
    Vector<n> high;
  };

  // aligned: true if `begin` is known at compile time to be aligned to n bytes
  template <bool aligned>
  [[nodiscard]] __device__ __forceinline__ Pending issue(std::uint32_t index) const {
    if constexpr (aligned) {
      return {load_once(aligned_ + index), {}};
    } else {
      if (offset_ == 0) return {load_once(aligned_ + index), {}};
      return {load(aligned_ + index), load(aligned_ + index + 1)};
    }
  }

  template <bool aligned>
  [[nodiscard]] __device__ __forceinline__ Vector<n> complete(const Pending& pending_loads) const {
    return aligned ? pending_loads.low : shifted(pending_loads.low, pending_loads.high, offset_);
  }

 private:
  unsigned offset_;
  const Vector<n>* aligned_;
};

}  // namespace tnt::gpu
