// Loads the MPI library of this process and the plug-in for its ABI, which is beside libtarantella. Only src/comm/mpi knows
// MPI.
#pragma once

#include <memory>
#include <string>

#include "comm/network/network.hpp"

namespace tnt {

// The network of MPI_COMM_WORLD. Initialises MPI if the program has not. The plug-in stays loaded. Throws TNT_UNSUPPORTED if
// the plug-in or its MPI library is missing, TNT_SYSTEM if MPI fails.
// variable: by which mpi_launcher_variable knew that MPI started the process.
// comm: the address of an MPI_Comm; not null: its network, of an MPI that the program has initialised. TNT_TIMEOUT: not all of
// its processes have called this within so many seconds.
[[nodiscard]] std::shared_ptr<Network> open_mpi_network(const std::string& variable, const void* comm = nullptr,
                                                        double seconds = 0);

}  // namespace tnt
