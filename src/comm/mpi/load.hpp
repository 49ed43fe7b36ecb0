// Opens MPI when it is needed: libtarantella_mpi.so, beside libtarantella. Nothing else of the library knows MPI.
#pragma once

#include <memory>

#include "comm/network/network.hpp"

namespace tnt {

// All ranks of MPI_COMM_WORLD. Initialises MPI if the program has not. Throws TNT_UNSUPPORTED if this installation has no
// plug-in or the MPI that it was built for is missing, TNT_SYSTEM if MPI fails. The plug-in stays loaded.
[[nodiscard]] std::shared_ptr<Network> open_mpi_network();

}  // namespace tnt
