// The options of main for the tests of a rank started by mpirun.
#pragma once

#include <mpi.h>

namespace tnt::testing {

// The thread level with which the program initialises MPI before tnt_init; -1: Tarantella initialises it.
[[nodiscard]] int program_level();

}  // namespace tnt::testing
