// The work on a bucket in device memory: pack, unpack, reduce, accumulate. Launches on a stream, asynchronous, one launch each;
// nothing is uploaded, so that a launch can be captured in a CUDA graph. nvcc compiles the sources for libtarantella_cuda.so,
// the tests compile the same ones for the CPU. The bits are those of kernels/cpu, those of a NaN aside. Pointers to tensors and
// buffers need no alignment: where they have none of their type's, it is slow; where they have none of 16 bytes, nearly not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tarantella/tarantella.h"

namespace tnt::gpu {

using Stream = void*;  // cudaStream_t

// What may change from step to step: where a tensor lies.
struct TensorArgument {
  const void* in = nullptr;  // with scale 0: zeros are packed, nothing is read; else nullptr: it lies in the bucket already
  void* out = nullptr;       // nullptr: the result is not wanted
  double scale = 1.0;
};

// A part of one tensor: what one block of threads moves. Static: made with the plan (tiles.hpp).
struct Tile {
  std::uint64_t first = 0;    // element of the tensor at which it begins
  std::uint64_t slot = 0;     // element of the bucket at which it lies
  std::uint32_t tensor = 0;   // index into the bucket's tensors
  std::uint32_t count = 0;    // elements
  std::uint32_t dtype = 0;    // the tensor's tnt_dtype_t
  std::uint32_t padding = 0;  // elements after it that belong to no tensor; pack writes zeros there
};

// Of the values as they are written, or lie in the bucket: the sum of their squares in double, and how many are infinite or no
// numbers (then the sum is so as well). A partial for each tile, added in an order that is fixed by the tiles and by where the
// written memory lies modulo 16 bytes: the same bits whatever max_ctas, the device and, when a bucket is packed, the tensors'
// addresses.
struct Statistics {
  double sum_of_squares = 0.0;
  std::uint64_t non_finite = 0;
};

// All pointers are to device memory.
struct BucketLaunch {
  const Tile* tiles = nullptr;
  std::uint32_t n_tiles = 0;
  const TensorArgument* tensors = nullptr;
  void* bucket = nullptr;
  tnt_dtype_t wire = TNT_FLOAT32;    // the bucket's type; tensors of another floating-point type are cast
  Statistics* statistics = nullptr;  // n_tiles partials, or nullptr
  std::uint32_t max_ctas = 0;        // leaves multiprocessors to others; 0: as many as are of use
};

// bucket[slot] = scale * in[first], rounded as tnt::scale of kernels/cpu/pack.hpp rounds; zeros in the padding.
void pack(const BucketLaunch& launch, Stream stream);

// out[first] = bucket[slot], or, if accumulate, out += bucket: added in float if neither has more than 32 bits, else in double,
// and rounded once; integers wrap.
void unpack(const BucketLaunch& launch, bool accumulate, Stream stream);

// total = the sum of the partials, in an order that depends on n alone.
void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream);

enum class Order { ranks, tree };  // ((0 + 1) + 2) + 3, or (0 + 1) + (2 + 3): neighbours first, what is left over goes up
inline constexpr int max_sources = 64;

// out[i] = the sum of sources[0..n)[i], accumulated as kernels/cpu does, rounded once; out may be one of the sources.
// sources: an array in host memory, read before the call returns; n up to max_sources.
void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, Order order, Stream stream);

// y[i] += a * x[i] by a fused multiply-add in the accumulator's type, rounded to y's. Integers: a * x as tnt::scale, the sum
// wraps. x is not read if a is 0.
void axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype, Stream stream);

}  // namespace tnt::gpu
