// Detects from the environment that mpirun or srun started this process as one of several ranks.
#pragma once

#include <string>

#include "base/settings.hpp"

namespace tnt {

// The variable that shows it, such as "OMPI_COMM_WORLD_SIZE"; "" if the process was not started as one of several MPI ranks.
[[nodiscard]] std::string mpi_launcher_variable(const Environment& environment);
[[nodiscard]] std::string mpi_launcher_variable();

}  // namespace tnt
