// The kernels on a bucket in device memory: pack, unpack, reduce, sum_statistics. Each call launches one kernel on a stream and
// returns. Nothing is uploaded, so a launch can be captured in a CUDA graph. nvcc compiles the sources for
// libtarantella_cuda.so; the tests compile the same sources for the CPU (tests/simt). The results equal those of kernels/cpu
// bit for bit, except for the bits of a NaN. Pointers to tensors and buffers need no alignment, but are slow if they lack their
// type's alignment; a missing 16-byte alignment costs almost nothing.
//
// kernels/cuda knows neither devices' settings nor ranks; src/device calls it.
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

// A part of a tensor that one thread block moves. Static: made with the plan (bucket_layout.hpp).
struct Tile {
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

// All pointers are to device memory.
struct BucketLaunch {
  const Tile* tiles = nullptr;
  std::uint32_t n_tiles = 0;
  const TensorArgument* tensors = nullptr;
  void* bucket = nullptr;
  tnt_dtype_t wire = TNT_FLOAT32;    // the bucket's type; tensors of other floating-point types are cast
  Statistics* statistics = nullptr;  // n_tiles partials, or nullptr
  std::uint32_t max_ctas = 0;        // leaves multiprocessors to other work; 0: no limit
};

// bucket[slot] = scale * in[first], rounded as in tnt::scale of kernels/cpu/pack.hpp; zeros in the padding.
void pack(const BucketLaunch& launch, Stream stream);

// out[first] = bucket[slot], cast to the tensor's type.
void unpack(const BucketLaunch& launch, Stream stream);

// total = the sum of the partials, in an order that depends on n only.
void sum_statistics(const Statistics* partials, std::uint32_t n, Statistics* total, Stream stream);

inline constexpr int max_sources = 64;

// out[i] = the sum of sources[0..n)[i], accumulated in the type and the tree of kernels/cpu and rounded once; out may be one of
// the sources. sources: an array in host memory that is read before the call returns, with at most max_sources entries.
void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, Stream stream);

}  // namespace tnt::gpu
