// Detects from the environment that mpirun or srun started this process as one of several ranks.
#pragma once

#include <string>

#include "base/settings.hpp"

namespace tnt {

// The variable that shows it, such as "OMPI_COMM_WORLD_SIZE"; "" if the process was not started as one of several MPI ranks.
[[nodiscard]] std::string mpi_launcher_variable(const Environment& environment);

// Throws TNT_UNSUPPORTED if srun started this process as one of several tasks that cannot find each other, for want of PMI:
// each would take itself for the only rank. Programs that are meant so set TNT_SIZE=1.
void refuse_tasks_without_pmi(const Environment& environment);

}  // namespace tnt
