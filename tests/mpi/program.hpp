// What main tells the tests of a rank that mpirun started.
#pragma once

#include <mpi.h>

namespace tnt::testing {

// The thread level with which the program initialised MPI before tnt_init; -1: it left that to Tarantella.
[[nodiscard]] int program_level();

}  // namespace tnt::testing
