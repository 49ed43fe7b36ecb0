#include "comm/mpi/load.hpp"

#include "base/plugin.hpp"
#include "comm/mpi/plugin.hpp"

namespace tnt {
namespace {

// global: MPI libraries load components that look for MPI symbols globally
constexpr PluginName mpi_plugin{
    .file = "libtarantella_mpi.so",
    .symbol = mpi_plugin_symbol,
    .global = true,
    .missing =
        "ranks that mpirun or srun started need: install MPI (libopenmpi-dev), build again, or start the ranks with "
        "`tarantella -n N -- script.py`",
    .unloadable = "install the MPI that it was built for"};

}  // namespace

std::shared_ptr<Network> open_mpi_network(const void* comm, double seconds) {
  tnt_status_t status = TNT_SYSTEM;
  std::string message;
  Network* network = load_plugin_as<MpiPlugin>(mpi_plugin).open(comm, seconds, &status, &message);
  if (network == nullptr) throw Error(status, message);
  return std::shared_ptr<Network>(network);
}

}  // namespace tnt
