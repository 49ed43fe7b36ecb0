#include "benchmarks/simulated/smpi_reference.hpp"

#include <smpi/mpi.h>

#include "benchmarks/types.hpp"
#include "kernels/cpu/memory_model.hpp"

namespace tnt::bench {
namespace {

void charge_sum(void* /*in*/, void* /*inout*/, int* count, MPI_Datatype* type) {
  int bytes = 0;
  MPI_Type_size(*type, &bytes);
  (void)touches_memory(std::size_t{3} * static_cast<std::size_t>(*count) * static_cast<std::size_t>(bytes));
}

MPI_Datatype type_of(std::size_t bytes) {
  switch (bytes) {
    case 1: return MPI_BYTE;
    case 2: return MPI_SHORT;
    case 4: return MPI_FLOAT;
    default: return MPI_DOUBLE;
  }
}

}  // namespace

void smpi_all_reduce(void* data, std::size_t count, std::size_t element_bytes) {
  MPI_Op sum = MPI_OP_NULL;
  MPI_Op_create(charge_sum, 1, &sum);
  const int status = MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), type_of(element_bytes), sum, MPI_COMM_WORLD);
  MPI_Op_free(&sum);
  if (status != MPI_SUCCESS) throw Failure("SimGrid: MPI_Allreduce failed");
}

}  // namespace tnt::bench
