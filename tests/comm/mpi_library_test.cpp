// Which MPI library a process takes, and the sentences where there is none that fits.
#include "comm/mpi/mpi_library.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "common/error.hpp"

namespace tnt {
namespace {

// A process and its machine.
struct Machine {
  std::map<std::string, std::string> variables = {};
  std::set<std::string> files = {};
  std::set<std::string> of_loader = {};  // names of libraries that the loader finds
  std::vector<std::filesystem::path> loaded = {};
  std::vector<std::filesystem::path> starters = {};
  bool openmpi_plugin = true;
  bool mpich_plugin = true;

  [[nodiscard]] MpiLibrary find(const std::string& variable) const {
    const MpiSurroundings here{
        .environment =
            [this](const char* name) {
              const auto found = variables.find(name);
              return found == variables.end() ? nullptr : found->second.c_str();
            },
        .loaded = loaded,
        .starters = starters,
        .folders = {"/venv/lib/python3.12/site-packages/tarantella", "/venv/lib"},
        .exists = [this](const std::filesystem::path& file) { return files.contains(file.string()); },
        .loads = [this](const std::string& name) { return of_loader.contains(name); },
        .has_plugin = [this](const MpiAbi& abi) { return &abi == &open_mpi_abi ? openmpi_plugin : mpich_plugin; }};
    return find_mpi_library(variable, here);
  }
  [[nodiscard]] std::string file(const std::string& variable) const { return find(variable).file; }
  [[nodiscard]] std::string refusal(const std::string& variable) const {
    try {
      return "found " + find(variable).file;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
      return error.what();
    }
  }
};

const std::set<std::string> both_of_debian{"libmpi.so.40", "libmpich.so.12"};

TEST(MpiLibrary, IsThatOfTheMpirunWhichStartedTheProcess) {
  const Machine debian{.of_loader = both_of_debian};
  EXPECT_EQ(debian.file("OMPI_COMM_WORLD_SIZE"), "libmpi.so.40");
  EXPECT_EQ(debian.find("OMPI_COMM_WORLD_SIZE").abi, &open_mpi_abi);
  EXPECT_EQ(debian.file("PMI_SIZE"), "libmpich.so.12");
  EXPECT_EQ(debian.find("PMI_SIZE").abi, &mpich_abi);
}

TEST(MpiLibrary, AnMpirunComesWithItsOwn) {
  Machine machine{.files = {"/venv/lib/libmpi.so.40", "/opt/mpi/lib64/libmpi.so.40"}, .of_loader = both_of_debian};
  EXPECT_EQ(machine.file("OMPI_COMM_WORLD_SIZE"), "libmpi.so.40");
  machine.starters = {"/opt/mpi/bin/orted"};
  EXPECT_EQ(machine.file("OMPI_COMM_WORLD_SIZE"), "/opt/mpi/lib64/libmpi.so.40");
  machine.starters = {"/venv/bin/prterun"};
  EXPECT_EQ(machine.file("OMPI_COMM_WORLD_SIZE"), "/venv/lib/libmpi.so.40");
  machine.starters = {"/usr/bin/orterun"};
  EXPECT_EQ(machine.file("OMPI_COMM_WORLD_SIZE"), "libmpi.so.40");
}

TEST(MpiLibrary, TheUserSaysFirst) {
  Machine machine{.variables = {{"LD_LIBRARY_PATH", "/none::/fabric/lib"}},
                  .files = {"/fabric/lib/libmpi.so.12", "/venv/lib/libmpi.so.12"},
                  .of_loader = both_of_debian,
                  .starters = {"/venv/bin/hydra_pmi_proxy"}};
  EXPECT_EQ(machine.file("PMI_SIZE"), "/fabric/lib/libmpi.so.12");
  EXPECT_EQ(machine.file("OMPI_COMM_WORLD_SIZE"), "libmpi.so.40");
}

TEST(MpiLibrary, WhereTheLoaderHasNoneThatOfThePythonEnvironmentIsTaken) {
  const Machine machine{.files = {"/venv/lib/libmpi.so.12"}};
  EXPECT_EQ(machine.file("PMI_SIZE"), "/venv/lib/libmpi.so.12");
}

TEST(MpiLibrary, OneThatIsLoadedDecides) {
  Machine machine{.of_loader = both_of_debian, .loaded = {"/usr/lib/libmpich.so.12.2.2"}};
  EXPECT_EQ(machine.find("OMPI_COMM_WORLD_SIZE").abi, &mpich_abi);
  EXPECT_EQ(machine.file(""), "/usr/lib/libmpich.so.12.2.2");
  machine.loaded.emplace_back("/usr/lib/libmpi.so.40.30.4");  // two: that of the mpirun
  EXPECT_EQ(machine.find("OMPI_COMM_WORLD_SIZE").abi, &open_mpi_abi);
  EXPECT_EQ(machine.find("PMI_SIZE").abi, &mpich_abi);
}

TEST(MpiLibrary, SlurmStartsEither) {
  Machine machine{.variables = {{"SLURM_STEP_ID", "0"}, {"PMIX_RANK", "1"}}, .of_loader = both_of_debian};
  EXPECT_EQ(machine.find("SLURM_NTASKS").abi, &open_mpi_abi);
  machine.of_loader = {"libmpi.so.12"};
  EXPECT_EQ(machine.find("SLURM_NTASKS").abi, &mpich_abi);
  machine.variables.erase("PMIX_RANK");
  machine.of_loader = both_of_debian;
  EXPECT_EQ(machine.find("PMI_SIZE").abi, &mpich_abi);
  machine.mpich_plugin = false;
  EXPECT_EQ(machine.find("PMI_SIZE").abi, &open_mpi_abi);
  machine.of_loader = {};
  EXPECT_EQ(machine.refusal("PMI_SIZE").find("srun started this process as one of several ranks, and no MPI library"), 0U);
}

TEST(MpiLibrary, AnMpirunWithoutLibraryIsNamed) {
  const Machine machine{.of_loader = {"libmpi.so.40"}};
  EXPECT_EQ(machine.refusal("PMI_SIZE"),
            "PMI_SIZE says that an mpirun with the ABI of MPICH started this process, and no library of it (libmpi.so.12 or "
            "libmpich.so.12) was found: put its folder into LD_LIBRARY_PATH on all hosts");
}

TEST(MpiLibrary, AnInstallationWithoutThePlugInIsNamed) {
  const Machine machine{.of_loader = both_of_debian, .mpich_plugin = false};
  EXPECT_EQ(machine.refusal("PMI_SIZE")
                .find("this process uses libmpich.so.12, with the ABI of MPICH, and this installation of Tarantella has no "
                      "libtarantella_mpi_mpich.so: "),
            0U)
      << machine.refusal("PMI_SIZE");
}

TEST(MpiLibrary, OneOfNeitherAbiIsNamed) {
  for (const char* file : {"/opt/old/libmpi.so.20", "/opt/new/libmpi_abi.so.1", "/opt/cray/libmpi_gnu_91.so.12"}) {
    const Machine machine{.of_loader = both_of_debian, .loaded = {file}};
    const std::string said = machine.refusal("OMPI_COMM_WORLD_SIZE");
    EXPECT_EQ(said.find("the process has loaded the MPI " + std::string(file) + ", whose ABI Tarantella does not know: "), 0U)
        << said;
  }
}

TEST(MpiLibrary, AProgramWithACommunicatorHasOneLoaded) {
  const Machine machine{.of_loader = both_of_debian};
  EXPECT_EQ(machine.refusal("").find("options->mpi_comm: the program has loaded no MPI library (such as libmpi.so.40 or"), 0U);
}

TEST(MpiLibrary, ThisProcessHasNone) {
  const MpiSurroundings here = mpi_surroundings();
  EXPECT_TRUE(here.loaded.empty());
  EXPECT_TRUE(here.exists("/proc/self/exe"));
  EXPECT_FALSE(here.loads("libmpi.so.0"));
}

}  // namespace
}  // namespace tnt
