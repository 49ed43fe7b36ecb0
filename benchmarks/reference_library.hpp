// The interface of a plug-in with a reference library for tnt-bench. Only the plug-in is compiled against that library.
#pragma once

#include <cstddef>

#include "tarantella/tarantella.h"

namespace tnt::bench {

// collective: bench::Collective as a number.
struct ReferenceFunctions {
  // rendezvous: an empty folder that all ranks can access, for a library that needs one to find the other ranks. Returns
  // nullptr, or the reason why the library cannot be used here.
  const char* (*init)(const char* rendezvous, int rank, int ranks);
  const char* (*version)();
  bool (*supports)(int collective, tnt_dtype_t dtype, tnt_op_t op);
  // in == out: in place. Returns nullptr or an error message.
  const char* (*run)(int collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root);
  void (*finalize)();
};
using ReferenceOpen = void(ReferenceFunctions*);

inline constexpr const char* reference_symbol = "tnt_bench_reference_open";

}  // namespace tnt::bench
