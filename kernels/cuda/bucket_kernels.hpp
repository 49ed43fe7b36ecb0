// The kernels on a bucket in device memory: pack, unpack, accumulate, reduce, sum_statistics, clip_factor. Each call launches a
// kernel on a stream and returns. Addresses and scales travel in the kernel's parameters, so nothing is uploaded, and a CUDA
// graph keeps those of its capture. A bucket of more tensors than parameters hold takes several launches: one for every
// max_tensors_per_launch(), with the general kernels one for every few_tensors. nvcc compiles the sources for
// libtarantella_cuda.so; the tests compile the same sources for the CPU (tests/simt). The results equal those of kernels/cpu
// bit for bit, except for the bits of a NaN. Pointers to tensors and buffers need no alignment, but are slow if they lack their
// type's alignment. Where all are aligned to 16 bytes, all tensors have one type and no statistics are asked for, lean kernels
// run, which keep twice as many bytes in flight (kernel_of).
//
// kernels/cuda has all code that nvcc compiles; src/device calls it. It knows neither devices' settings nor ranks, and neither
// allocates nor waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tarantella/tarantella.h"

namespace tnt::gpu {

using Stream = void*;  // cudaStream_t

// The data that may change from step to step: the addresses and the scale of a tensor.
struct TensorArgument {
  // scale 0: zeros are packed and nothing is read; otherwise nullptr: it is already in the bucket
  const void* in = nullptr;
  void* out = nullptr;  // nullptr: the result is not wanted
  double scale = 1.0;
};

// 4 loads of 16 bytes for each of 256 threads.
inline constexpr std::size_t max_tile_bytes = std::size_t{16} * 1024;

// A part of a tensor that one thread block moves: max_tile_bytes at most, in the tensor and in the bucket. Static: made with
// the plan (bucket_layout.hpp). Read as two vectors.
struct alignas(16) Tile {
  std::uint64_t first = 0;    // first element in the tensor
  std::uint64_t slot = 0;     // first element in the bucket
  std::uint32_t tensor = 0;   // index among the bucket's tensors
  std::uint32_t count = 0;    // elements
  std::uint32_t dtype = 0;    // the tensor's tnt_dtype_t
  std::uint32_t padding = 0;  // elements after it that belong to no tensor; pack writes zeros there
};

// Statistics of values as they are written, as they are in the bucket, or as they would be written if they were wanted: the sum
// of their squares in double, and how many are infinite or NaN (the sum is then infinite or NaN, too). There is one partial for
// each tile. The order of the additions depends on the tiles and on the alignment of the written memory modulo 16 bytes only,
// not on max_ctas, the device or, in pack, the tensors' addresses.
struct Statistics {
  double sum_of_squares = 0.0;
  std::uint64_t non_finite = 0;
};

inline constexpr int mixed_dtypes = -1;

// BucketLayout::launch makes one.
struct BucketLaunch {
  // in host memory, read before the call returns
  const TensorArgument* tensors = nullptr;
  const std::uint32_t* first_tiles = nullptr;  // the first tile of each tensor, then n_tiles: n_tensors + 1 entries
  std::uint32_t n_tensors = 0;
  std::uint32_t n_tiles = 0;
  int dtype = mixed_dtypes;        // the tnt_dtype_t of all tensors, if they have one
  tnt_dtype_t wire = TNT_FLOAT32;  // the bucket's type; tensors of other floating-point types are cast
  std::uint32_t max_ctas = 0;      // leaves multiprocessors to other work; 0: no limit
  // in device memory
  const Tile* tiles = nullptr;
  void* bucket = nullptr;
  Statistics* statistics = nullptr;  // n_tiles partials, or nullptr
  const double* factor = nullptr;    // unpack multiplies by it; nullptr: by 1
};

enum class Direction { pack, unpack };

// Whether the kernels have cp.async.bulk on the current device, by which few blocks keep many bytes in flight: machine code or
// PTX for compute capability 9.0 or newer.
[[nodiscard]] bool has_bulk_copies();

// Whether max_ctas gives a launch fewer blocks than tiles.
[[nodiscard]] inline bool is_limited(const BucketLaunch& launch) {
  return launch.max_ctas != 0 && launch.max_ctas < launch.n_tiles;
}

// The kernel that a launch takes. general: any types, alignments, statistics. cast: lean, converts or scales. copy: lean.
enum class KernelKind { general, cast, copy };
[[nodiscard]] KernelKind kernel_of(const BucketLaunch& launch, Direction direction);

// Kernels take 4 KiB of parameters, from CUDA 12.1 on (toolkit and driver) 32,764 bytes. Few parameters cost less to launch.
inline constexpr std::uint32_t few_tensors = 240;
inline constexpr std::uint32_t many_tensors = 2000;
[[nodiscard]] std::uint32_t max_tensors_per_launch();

// Loads all kernels for the current context. CUDA loads a kernel when it is first launched, and may wait for the device then:
// behind a collective that waits for another rank, for ever.
void load_kernels();

// bucket[slot] = scale * in[first], rounded as in tnt::scale of kernels/cpu/pack.hpp; zeros in the padding.
void pack(const BucketLaunch& launch, Stream stream);

// out[first] = factor * bucket[slot], cast to the tensor's type. With a factor, out may be the slot itself.
void unpack(const BucketLaunch& launch, Stream stream);

// out[first] += bucket[slot], where out is float32 whatever the tensor's type; rounded once. The bucket travels in float32, 16
// or 8 bits. Ignores statistics, factor and max_ctas' bulk copies.
void accumulate(const BucketLaunch& launch, Stream stream);

// total = the sum of the partials, in an order that depends on n only.
void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream);

// factor = limit / norm if the norm, the square root of the sum of all squares, is finite and above the limit; else 1. Adds up
// the n statistics one after another.
void clip_factor(const Statistics* statistics, std::uint32_t n, double limit, double* factor, Stream stream);

inline constexpr int max_sources = 64;

// out[i] = the sum of sources[0..n)[i], accumulated in the type and the tree of kernels/cpu and rounded once; out may be one of
// the sources. sources: an array in host memory that is read before the call returns, with at most max_sources entries.
void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, Stream stream);

}  // namespace tnt::gpu
