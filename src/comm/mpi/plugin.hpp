// The one symbol of the plug-ins for MPI, for the library that loads them.
#pragma once

#include <string>

#include "comm/network/messages/network.hpp"
#include "common/error.hpp"

namespace tnt {

inline constexpr const char* mpi_plugin_symbol = "tnt_mpi_plugin";

// Library and plug-in are built together; a plug-in of another version is rejected before any other use.
struct MpiPlugin {
  const char* version;  // of the library
  // comm, seconds: as open_mpi_network. Returns a new network, owned by the caller, or nullptr with the reason in *status and
  // *message.
  Network* (*open)(const void* comm, double seconds, tnt_status_t* status, std::string* message);
};

}  // namespace tnt
