// What libtnt_bench_mpi.so, the only file that is compiled against an MPI, gives to tnt-bench.
#pragma once

#include <cstddef>

#include "tarantella/tarantella.h"

namespace tnt::bench {

struct MpiFunctions {
  const char* (*init)(int* rank, int* ranks);  // nullptr, or why MPI cannot be used
  const char* (*version)();
  // collective: bench::Collective as a number. nullptr, or the error's text.
  const char* (*run)(int collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root);
  void (*finalize)();
};
using MpiOpen = void(MpiFunctions*);

}  // namespace tnt::bench
