// How a process detects that mpirun or srun started it as one of several.
#include "bootstrap/join.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/error.hpp"

namespace tnt {
namespace {

std::string sign(const std::map<std::string, std::string>& variables) {
  return mpi_launcher_variable([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(MpiEnvironment, SaysWhoStartedTheRanks) {
  EXPECT_EQ(sign({{"OMPI_COMM_WORLD_SIZE", "2"}}), "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(sign({{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}), "PMI_SIZE");
  EXPECT_EQ(sign({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "1"}}), "SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(sign({{"SLURM_NTASKS", "4"}, {"PMI_RANK", "1"}}), "SLURM_NTASKS");
}

TEST(MpiEnvironment, OneProcessIsNoJobOfMpis) {
  EXPECT_EQ(sign({}), "");
  EXPECT_EQ(sign({{"OMPI_COMM_WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(sign({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}), "");
  EXPECT_EQ(sign({{"PMIX_RANK", "0"}}), "");
}

TEST(MpiEnvironment, ABatchScriptIsNoRank) { EXPECT_EQ(sign({{"SLURM_NTASKS", "16"}}), ""); }

TEST(MpiEnvironment, OurLauncherComesFirst) { EXPECT_EQ(sign({{"OMPI_COMM_WORLD_SIZE", "2"}, {"TNT_SIZE", "1"}}), ""); }

// What ranks that srun started are told if they cannot meet; "" if they may join.
std::string refusal(const std::map<std::string, std::string>& variables) {
  try {
    refuse_tasks_without_pmi([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
    return error.what();
  }
  return "";
}

TEST(MpiEnvironment, TasksOfSlurmWithoutPmiAreRefused) {
  const std::string said = refusal({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}});
  EXPECT_EQ(said.find("srun started 4 tasks that cannot find each other"), 0U) << said;
}

TEST(MpiEnvironment, OtherProcessesOfSlurmAreNot) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "");  // a batch script
  EXPECT_EQ(refusal({{"SLURM_STEP_NUM_TASKS", "1"}}), "");
  for (const char* by : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "TNT_SIZE"}) {
    EXPECT_EQ(refusal({{"SLURM_STEP_NUM_TASKS", "4"}, {by, "1"}}), "") << by;
  }
}

}  // namespace
}  // namespace tnt
