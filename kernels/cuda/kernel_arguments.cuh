// The parameters of pack and unpack: addresses and scales lie in constant memory, where all threads of a block read the same
// entry at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/vectors.cuh"

namespace tnt::gpu {

struct alignas(16) TensorSide {
  std::byte* address;  // pack: in (read only); unpack: out
  double scale;        // unpack: 1
};

#if defined(__CUDACC__) && CUDART_VERSION < 12010
inline constexpr std::uint32_t max_capacity = few_tensors;
#else
inline constexpr std::uint32_t max_capacity = many_tensors;
#endif

template <std::uint32_t n>
struct KernelArguments {
  static constexpr std::uint32_t capacity = n;

  const Tile* tiles;
  std::byte* bucket;
  Statistics* statistics;  // of the first of these tiles, or nullptr
  const double* factor;    // nullptr: 1
  std::uint32_t n_tiles;
  std::uint32_t first_tensor;  // the tensor of tensors[0]
  TensorSide tensors[capacity];

  [[nodiscard]] __device__ __forceinline__ const TensorSide& of(const Tile& tile) const {
    return tensors[tile.tensor - first_tensor];
  }
};
static_assert(sizeof(KernelArguments<few_tensors>) <= 4096 && sizeof(KernelArguments<many_tensors>) <= 32764);

[[nodiscard]] __device__ __forceinline__ Tile load_tile(const Tile* from) {
  static_assert(sizeof(Tile) == 32 && alignof(Tile) == 16);
  const auto* vectors = reinterpret_cast<const Vector<16>*>(from);
  const Vector<16> low = load(vectors);
  const Vector<16> high = load(vectors + 1);
  Tile tile;
  auto* bytes = reinterpret_cast<std::byte*>(&tile);
  std::memcpy(bytes, &low, sizeof(low));
  std::memcpy(bytes + sizeof(low), &high, sizeof(high));
  return tile;
}

// Calls f(KernelArguments) for every `capacity` tensors.
template <std::uint32_t capacity, typename F>
void for_each_part(const BucketLaunch& launch, Direction direction, const F& f) {
  for (std::uint32_t begin = 0; begin < launch.n_tensors; begin += capacity) {
    const std::uint32_t end = launch.n_tensors - begin < capacity ? launch.n_tensors : begin + capacity;
    const std::uint32_t first_tile = launch.first_tiles[begin];
    KernelArguments<capacity> arguments;  // only the entries that are used are set
    arguments.tiles = launch.tiles + first_tile;
    arguments.bucket = static_cast<std::byte*>(launch.bucket);
    arguments.statistics = launch.statistics == nullptr ? nullptr : launch.statistics + first_tile;
    arguments.factor = launch.factor;
    arguments.n_tiles = launch.first_tiles[end] - first_tile;
    arguments.first_tensor = begin;
    if (arguments.n_tiles == 0) continue;
    for (std::uint32_t i = begin; i < end; ++i) {
      const TensorArgument& tensor = launch.tensors[i];
      if (direction == Direction::pack) {
        arguments.tensors[i - begin] = {static_cast<std::byte*>(const_cast<void*>(tensor.in)), tensor.scale};
      } else {
        arguments.tensors[i - begin] = {static_cast<std::byte*>(tensor.out), 1.0};
      }
    }
    f(arguments);
  }
}

// The same with the capacity that fits, for lean kernels. The general ones would be compiled twice for it.
template <typename F>
void with_capacity_that_fits(const BucketLaunch& launch, Direction direction, const F& f) {
  if (launch.n_tensors <= few_tensors || max_tensors_per_launch() == few_tensors) {
    for_each_part<few_tensors>(launch, direction, f);
  } else {
    for_each_part<max_capacity>(launch, direction, f);
  }
}

}  // namespace tnt::gpu
