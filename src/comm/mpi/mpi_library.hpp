// Finds the MPI library of this process: that of the mpirun or srun that started it. Two ABIs are known, each with a plug-in of
// its own (mpi.cmake). The plug-ins do not link their library, so that one installation fits every MPI with these ABIs.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "comm/network/messages/network.hpp"

namespace tnt {

struct MpiAbi {
  const char* name;                  // of whose ABI it is
  std::array<const char*, 2> files;  // the names under which the loader knows its libraries; nullptr: no second one
  const char* plugin;
};

inline constexpr MpiAbi open_mpi_abi{"Open MPI", {"libmpi.so.40", nullptr}, "libtarantella_mpi_openmpi.so"};
// Debian calls its library by the second name.
inline constexpr MpiAbi mpich_abi{"MPICH", {"libmpi.so.12", "libmpich.so.12"}, "libtarantella_mpi_mpich.so"};

struct MpiLibrary {
  const MpiAbi* abi;
  std::string file;  // for dlopen
};

// What there is to see of a process. Tests make one up.
struct MpiSurroundings {
  Environment environment;
  std::vector<std::filesystem::path> loaded;    // the MPI libraries that are in the process
  std::vector<std::filesystem::path> starters;  // the programs of MPI among the processes above this one
  std::vector<std::filesystem::path> folders;   // where an MPI may be that the loader does not know
  std::function<bool(const std::filesystem::path&)> exists;
  std::function<bool(const std::string&)> loads;  // whether the loader finds a library of this name
  std::function<bool(const MpiAbi&)> has_plugin;  // whether this installation has the plug-in
};

[[nodiscard]] MpiSurroundings mpi_surroundings();

// A library that is loaded already decides, else the variable by which mpi_launcher_variable knew the start. "": the program
// has initialised MPI. Throws TNT_UNSUPPORTED with the remedy: another ABI, no library, no plug-in.
[[nodiscard]] MpiLibrary find_mpi_library(const std::string& variable, const MpiSurroundings& here);

// Loads the MPI library of this process and the plug-in for its ABI, which is beside libtarantella. Only src/comm/mpi knows
// MPI.
//
// The network of MPI_COMM_WORLD. Initialises MPI if the program has not. The plug-in stays loaded. Throws TNT_UNSUPPORTED if
// the plug-in or its MPI library is missing, TNT_SYSTEM if MPI fails.
// variable: by which mpi_launcher_variable knew that MPI started the process.
// comm: the address of an MPI_Comm; not null: its network, of an MPI that the program has initialised. TNT_TIMEOUT: not all of
// its processes have called this within so many seconds.
[[nodiscard]] std::shared_ptr<Network> open_mpi_network(const std::string& variable, const void* comm = nullptr,
                                                        double seconds = 0);

}  // namespace tnt
