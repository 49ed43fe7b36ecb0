// Loads libtarantella_mpi.so, which is beside libtarantella, on demand. Only src/comm/mpi knows MPI.
#pragma once

#include <memory>

#include "comm/network/network.hpp"

namespace tnt {

// The network of MPI_COMM_WORLD. Initialises MPI if the program has not. The plug-in stays loaded. Throws TNT_UNSUPPORTED if
// the plug-in or its MPI library is missing, TNT_SYSTEM if MPI fails.
// comm: the address of an MPI_Comm; not null: its network, of an MPI that the program has initialised. TNT_TIMEOUT: not all of
// its processes have called this within so many seconds.
[[nodiscard]] std::shared_ptr<Network> open_mpi_network(const void* comm = nullptr, double seconds = 0);

}  // namespace tnt
