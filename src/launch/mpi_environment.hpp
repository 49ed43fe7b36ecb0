// What mpirun and srun tell a process in its environment: that it is one of several ranks.
#pragma once

#include <string>

#include "base/settings.hpp"

namespace tnt {

// The variable that says so, such as "OMPI_COMM_WORLD_SIZE"; "" if this process was not started as one of several MPI ranks.
[[nodiscard]] std::string mpi_launcher_variable(const Environment& environment);
[[nodiscard]] std::string mpi_launcher_variable();

}  // namespace tnt
