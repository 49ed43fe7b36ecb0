#include "bootstrap/mpi_environment.hpp"

#include <cstdlib>

#include "common/error.hpp"

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

void refuse_tasks_without_pmi(const Environment& environment) {
  for (const char* name : {"TNT_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (environment(name) != nullptr) return;  // started by something that says how ranks meet, also if there is one alone
  }
  const char* const tasks = environment("SLURM_STEP_NUM_TASKS");  // a batch script alone has none
  if (!above_one(tasks)) return;
  fail(
      TNT_UNSUPPORTED,
      "srun started {} tasks that cannot find each other, each would train by itself: use `srun --mpi=pmix` (`srun --mpi=list` "
      "shows what this Slurm has), or give each task TNT_RANK, TNT_SIZE, TNT_RENDEZVOUS and TNT_TOKEN (docs/clusters.md, "
      "Without MPI). For programs that have nothing to do with each other set TNT_SIZE=1",
      tasks);
}

}  // namespace tnt
