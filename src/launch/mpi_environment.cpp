#include "launch/mpi_environment.hpp"

#include <cstdlib>

namespace tnt {
namespace {

bool above_one(const char* value) { return value != nullptr && std::strtol(value, nullptr, 10) > 1; }

}  // namespace

std::string mpi_launcher_variable(const Environment& environment) {
  if (environment("TNT_SIZE") != nullptr) return "";  // our launcher started the process, whatever started the launcher
  // Open MPI; MPICH's Hydra, Intel MPI and MVAPICH
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (above_one(environment(name))) return name;
  }
  // srun: tasks of a step that can find each other (a batch script alone has SLURM_NTASKS, too)
  const bool has_pmi = environment("PMIX_RANK") != nullptr || environment("PMI_RANK") != nullptr;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (has_pmi && above_one(environment(name))) return name;
  }
  return "";
}

std::string mpi_launcher_variable() {
  return mpi_launcher_variable([](const char* name) { return std::getenv(name); });
}

}  // namespace tnt
