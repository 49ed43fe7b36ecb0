// The entry of the plug-ins for MPI.
#include "comm/mpi/plugin.hpp"

#include "base/plugin.hpp"
#include "comm/mpi/mpi_network.hpp"

namespace tnt {
namespace {

Network* open(const void* comm, double seconds, tnt_status_t* status, std::string* message) {
  return without_throwing<Network*>(nullptr, status, message, [&] { return new MpiNetwork(comm, seconds); });
}

constexpr MpiPlugin plugin{TNT_VERSION_TEXT, open};

}  // namespace
}  // namespace tnt

extern "C" TNT_EXPORT const tnt::MpiPlugin* tnt_mpi_plugin() { return &tnt::plugin; }
