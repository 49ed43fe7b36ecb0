#include "comm/mpi/load.hpp"

#include <dlfcn.h>

#include "base/plugin.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "comm/mpi/plugin.hpp"

namespace tnt {

std::shared_ptr<Network> open_mpi_network(const std::string& variable, const void* comm, double seconds) {
  const MpiLibrary mpi = find_mpi_library(variable, mpi_surroundings());
  // global: the plug-in takes its symbols, and MPI loads components that look for them there. It is never closed, as MPI cannot
  // be initialised twice.
  if (dlopen(mpi.file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* reason = dlerror();
    fail(TNT_UNSUPPORTED, "cannot load {}, the MPI library of this process: {}: install it anew", mpi.file,
         reason == nullptr ? "unknown error" : reason);
  }
  const PluginName plugin{.file = mpi.abi->plugin,
                          .symbol = mpi_plugin_symbol,
                          .missing = "ranks that mpirun or srun started need: install Tarantella anew",
                          .unloadable = "install an MPI of the same ABI that is newer"};
  tnt_status_t status = TNT_SYSTEM;
  std::string message;
  Network* network = load_plugin_as<MpiPlugin>(plugin).open(comm, seconds, &status, &message);
  if (network == nullptr) throw Error(status, message);
  return std::shared_ptr<Network>(network);
}

}  // namespace tnt
