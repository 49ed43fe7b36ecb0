// The interface of a peer plug-in for tnt-bench. Only the plug-in is compiled against the peer library.
#pragma once

#include <cstddef>

#include "tarantella/tarantella.h"

namespace tnt::bench {

// collective: bench::Collective as a number.
struct PeerFunctions {
  // meeting: an empty folder that all ranks can access, for a peer that needs one to find the other ranks. Returns nullptr, or
  // the reason why the peer cannot be used here.
  const char* (*init)(const char* meeting, int rank, int ranks);
  const char* (*version)();
  bool (*supports)(int collective, tnt_dtype_t dtype, tnt_op_t op);
  // in == out: in place. Returns nullptr or an error message.
  const char* (*run)(int collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root);
  void (*finalize)();
};
using PeerOpen = void(PeerFunctions*);

inline constexpr const char* peer_symbol = "tnt_bench_peer_open";

}  // namespace tnt::bench
