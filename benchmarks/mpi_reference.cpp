// Plain MPI calls as a reference for tnt-bench.
#include <mpi.h>

#include <climits>
#include <string>
#include <vector>

#include "benchmarks/reference_library.hpp"
#include "benchmarks/shares.hpp"
#include "benchmarks/types.hpp"

namespace tnt::bench {
namespace {

const char* error_text(int code) {
  static std::string text;
  char buffer[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, buffer, &length);
  text.assign(buffer, static_cast<std::size_t>(length));
  return text.c_str();
}

bool we_have_begun = false;  // otherwise the library has initialised MPI, and finalizes it

const char* init(const char* /*rendezvous*/, int rank, int ranks) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) return error_text(code);
    we_have_begun = true;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int mpi_rank = 0;
  int mpi_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi_ranks);
  if (mpi_rank == rank && mpi_ranks == ranks) return nullptr;
  static std::string text;
  text = "MPI sees " + std::to_string(mpi_ranks) + (mpi_ranks == 1 ? " rank" : " ranks") + " where there are " +
         std::to_string(ranks) + ": start tnt-bench with mpirun, or with --ranks where mpirun is installed";
  return text.c_str();
}

const char* version() {
  static std::string text;
  char buffer[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(buffer, &length);
  text.assign(buffer, static_cast<std::size_t>(length));
  text = text.substr(0, text.find_first_of(",\n"));
  for (char& c : text) {
    if (c == '\t') c = ' ';
  }
  return text.c_str();
}

MPI_Datatype type_of(tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_FLOAT32: return MPI_FLOAT;
    case TNT_FLOAT64: return MPI_DOUBLE;
    case TNT_INT8: return MPI_INT8_T;
    case TNT_UINT8: return MPI_UINT8_T;
    case TNT_INT32: return MPI_INT32_T;
    case TNT_INT64: return MPI_INT64_T;
    case TNT_UINT32: return MPI_UINT32_T;
    case TNT_UINT64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
  }
}

MPI_Op op_of(tnt_op_t op) {
  switch (op) {
    case TNT_SUM: return MPI_SUM;
    case TNT_MIN: return MPI_MIN;
    case TNT_MAX: return MPI_MAX;
    case TNT_PROD: return MPI_PROD;
    case TNT_LAND: return MPI_LAND;
    case TNT_LOR: return MPI_LOR;
    case TNT_LXOR: return MPI_LXOR;
    case TNT_BAND: return MPI_BAND;
    case TNT_BOR: return MPI_BOR;
    case TNT_BXOR: return MPI_BXOR;
    default: return MPI_OP_NULL;
  }
}

int round_the_ring(const void* in, void* out, int count, MPI_Datatype type) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return MPI_Sendrecv(in, count, type, (rank + 1) % ranks, 0, out, count, type, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
}

int own_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// Of the uneven forms: how much each rank gets of this one's buffer, and where; the same of what each rank sends to this one.
struct Counts {
  int all = -1;
  std::vector<int> sent, sent_begins, received, received_begins;
};

const Counts& counts_of(int all) {
  static Counts counts;
  if (counts.all == all) return counts;
  counts = Counts();
  counts.all = all;
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto n = static_cast<std::size_t>(all);
  const auto own = static_cast<int>(share(n, ranks, own_rank()));
  for (int rank = 0; rank < ranks; ++rank) {
    counts.sent.push_back(static_cast<int>(share(n, ranks, rank)));
    counts.sent_begins.push_back(static_cast<int>(share_begin(n, ranks, rank)));
    counts.received.push_back(own);
    counts.received_begins.push_back(rank * own);
  }
  return counts;
}

int call_uneven(Collective collective, const void* in, void* out, int all, MPI_Datatype type, MPI_Op op) {
  const Counts& counts = counts_of(all);
  switch (collective) {
    case Collective::all_gather_v:
      return MPI_Allgatherv(in, counts.received.front(), type, out, counts.sent.data(), counts.sent_begins.data(), type,
                            MPI_COMM_WORLD);
    case Collective::reduce_scatter_v: return MPI_Reduce_scatter(in, out, counts.sent.data(), type, op, MPI_COMM_WORLD);
    default:
      return MPI_Alltoallv(in, counts.sent.data(), counts.sent_begins.data(), type, out, counts.received.data(),
                           counts.received_begins.data(), type, MPI_COMM_WORLD);
  }
}

int call(Collective collective, const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root) {
  const void* from = in == out ? MPI_IN_PLACE : in;
  switch (collective) {
    case Collective::all_reduce: return MPI_Allreduce(from, out, count, type, op, MPI_COMM_WORLD);
    case Collective::reduce_scatter: return MPI_Reduce_scatter_block(in, out, count, type, op, MPI_COMM_WORLD);
    case Collective::all_gather: return MPI_Allgather(in, count, type, out, count, type, MPI_COMM_WORLD);
    case Collective::broadcast: return MPI_Bcast(out, count, type, root, MPI_COMM_WORLD);
    case Collective::all_to_all: return MPI_Alltoall(from, count, type, out, count, type, MPI_COMM_WORLD);
    case Collective::reduce: return MPI_Reduce(own_rank() == root ? from : in, out, count, type, op, root, MPI_COMM_WORLD);
    case Collective::gather: return MPI_Gather(in, count, type, out, count, type, root, MPI_COMM_WORLD);
    case Collective::scatter: return MPI_Scatter(in, count, type, out, count, type, root, MPI_COMM_WORLD);
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v: return call_uneven(collective, in, out, count, type, op);
    case Collective::sendrecv: return round_the_ring(in, out, count, type);
    case Collective::barrier: return MPI_Barrier(MPI_COMM_WORLD);
    default: return MPI_ERR_ARG;
  }
}

bool reduces(int collective) {
  return collective == static_cast<int>(Collective::all_reduce) || collective == static_cast<int>(Collective::reduce_scatter) ||
         collective == static_cast<int>(Collective::reduce) || collective == static_cast<int>(Collective::reduce_scatter_v);
}

// MPI has no 16-bit floating-point types and no average.
bool supports(int collective, tnt_dtype_t dtype, tnt_op_t op) {
  return type_of(dtype) != MPI_DATATYPE_NULL && (!reduces(collective) || op_of(op) != MPI_OP_NULL);
}

const char* run(int collective, const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op, int root) {
  // the last rank's results of all_to_all_v are nearly twice as long as its inputs
  const bool longer = collective == static_cast<int>(Collective::all_to_all_v);
  if (count > (longer ? INT_MAX / 2 : INT_MAX)) return "more elements than an int counts";
  const MPI_Datatype type = type_of(dtype);
  const MPI_Op mpi_op = reduces(collective) ? op_of(op) : MPI_SUM;
  const int code = call(static_cast<Collective>(collective), in, out, static_cast<int>(count), type, mpi_op, root);
  return code == MPI_SUCCESS ? nullptr : error_text(code);
}

void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && we_have_begun) MPI_Finalize();
}

}  // namespace
}  // namespace tnt::bench

extern "C" __attribute__((visibility("default"))) void tnt_bench_reference_open(tnt::bench::ReferenceFunctions* functions) {
  using namespace tnt::bench;
  *functions = {init, version, supports, run, finalize};
}
