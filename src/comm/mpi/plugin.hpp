// The one symbol of libtarantella_mpi.so, as the library that loads it knows it.
#pragma once

#include <string>

#include "base/error.hpp"
#include "comm/network/network.hpp"

namespace tnt {

inline constexpr const char* mpi_plugin_symbol = "tnt_mpi_plugin";

// Both sides are built together: a plug-in of another version is refused before anything else of it is used.
struct MpiPlugin {
  const char* version;  // the library's
  // A new network, the caller's; or nullptr with the reason in *status and *message.
  Network* (*open)(tnt_status_t* status, std::string* message);
};

}  // namespace tnt
