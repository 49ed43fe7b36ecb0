// MPI_Allreduce of SimGrid's simulated MPI, with the algorithms that another MPI library would choose: what ours is compared
// with, on the same platform and in the same run.
#pragma once

#include <cstddef>

namespace tnt::bench {

// By the calling actor, in place. Sums take the memory's time but touch no data; copies of this MPI cost nothing.
void smpi_all_reduce(void* data, std::size_t count, std::size_t element_bytes);

}  // namespace tnt::bench
