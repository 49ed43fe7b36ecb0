// The backend of a measurement: our library, or another library that is measured for comparison in the same processes.
//
// This folder is tnt-bench. It calls our library by the C API only; benchmarks of training are Python (training).
#pragma once

#include <memory>
#include <string>

#include "benchmarks/start.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string name() const = 0;     // "shm", "mpi"
  [[nodiscard]] virtual std::string version() const = 0;  // "Open MPI 4.1.4"

  [[nodiscard]] virtual bool supports(Collective collective, tnt_dtype_t dtype, tnt_op_t op) const = 0;

  // count: elements as in tarantella.h, of the vector for all_reduce and broadcast, of one rank's part for the others, and of
  // all parts for the uneven forms (shares.hpp).
  virtual void run(Collective collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                   int root) = 0;
};

// A backend, or the reason why there is none on this machine or in this version.
struct OpenedBackend {
  std::unique_ptr<Backend> backend;
  std::string reason;
};

// Our library with the named transport. Collective.
[[nodiscard]] OpenedBackend open_tarantella(const std::string& name, const Team& team);

// A reference library, "mpi" or "gloo", in the same processes: libtnt_bench_NAME.so beside this program (or in lib/tarantella
// of its prefix), or in the folder that TNT_INTERNAL_BENCH_PEERS names, for plug-ins that were built against other MPI
// libraries. Collective.
[[nodiscard]] OpenedBackend open_reference(const std::string& name, const Team& team);

}  // namespace tnt::bench
