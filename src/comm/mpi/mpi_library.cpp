#include "comm/mpi/mpi_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/plugin.hpp"
#include "base/read_text.hpp"
#include "comm/mpi/plugin.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

namespace fs = std::filesystem;

constexpr int max_ancestors = 32;
constexpr std::initializer_list<const MpiAbi*> abis{&open_mpi_abi, &mpich_abi};

// "libmpi" of "libmpi.so.40.30.4". MPI's other libraries (libmpi_cxx, libmpifort ...) have no MPI_Init of their own.
bool is_mpi_library(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string stem = name.substr(0, name.find(".so"));
  const auto known = {"libmpi", "libmpich", "libmpi_abi", "libmpi_cray", "libmpt"};
  return stem != name && (std::find(known.begin(), known.end(), stem) != known.end() || stem.starts_with("libmpi_gnu_"));
}

const MpiAbi* abi_of(const fs::path& library) {
  const std::string name = library.filename().string();
  for (const MpiAbi* abi : abis) {
    for (const char* file : abi->files) {
      if (file != nullptr && (name == file || name.starts_with(std::string(file) + "."))) return abi;
    }
  }
  return nullptr;
}

std::vector<fs::path> loaded_mpi_libraries() {
  std::vector<fs::path> found;
  const auto take = [](dl_phdr_info* info, std::size_t, void* into) {
    if (info->dlpi_name == nullptr || info->dlpi_name[0] == '\0') return 0;
    std::error_code unreadable;
    const fs::path file = fs::canonical(info->dlpi_name, unreadable);  // libmpi.so is often a link to libmpi.so.40
    if (!unreadable && is_mpi_library(file)) static_cast<std::vector<fs::path>*>(into)->push_back(file);
    return 0;
  };
  dl_iterate_phdr(take, &found);
  return found;
}

// The parent of a process; 0 if nothing tells.
pid_t parent_of(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process));
  const std::size_t name_ends = text.rfind(')');  // "PID (NAME) STATE PARENT ..."
  return name_ends == std::string::npos || name_ends + 4 > text.size() ? 0 : std::atoi(text.c_str() + name_ends + 4);
}

bool is_starter(const fs::path& program) {
  const std::string name = program.filename().string();
  const auto known = {"mpirun", "mpiexec", "orterun", "orted", "prte", "hydra_"};
  return std::any_of(known.begin(), known.end(), [&](const char* begin) { return name.starts_with(begin); });
}

std::vector<fs::path> starters_of_this_process() {
  std::vector<fs::path> found;
  pid_t process = getppid();
  for (int i = 0; i < max_ancestors && process > 1; ++i) {
    std::error_code unreadable;
    const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", process), unreadable);  // not of another user
    if (!unreadable && is_starter(program)) found.push_back(program);
    process = parent_of(process);
  }
  return found;
}

std::vector<fs::path> folders_in(const char* list) {
  std::vector<fs::path> found;
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(":;"), rest.size());
    if (end > 0) found.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

std::optional<std::string> file_in(const std::vector<fs::path>& folders, const MpiAbi& abi, const MpiSurroundings& here) {
  for (const fs::path& folder : folders) {
    for (const char* file : abi.files) {
      if (file != nullptr && here.exists(folder / file)) return (folder / file).string();
    }
  }
  return std::nullopt;
}

// First where the user says, as the loader does, then what belongs to the program that started this one: a machine may have
// several libraries of one ABI, and an mpirun starts its own.
std::optional<std::string> file_of(const MpiAbi& abi, const MpiSurroundings& here) {
  if (auto file = file_in(folders_in(here.environment("LD_LIBRARY_PATH")), abi, here)) return file;
  std::vector<fs::path> beside;
  for (const fs::path& starter : here.starters) {
    const fs::path prefix = starter.parent_path().parent_path();
    for (const char* folder : {"lib", "lib64", "lib/release"}) beside.push_back(prefix / folder);
  }
  if (auto file = file_in(beside, abi, here)) return file;
  for (const char* file : abi.files) {
    if (file != nullptr && here.loads(file)) return file;
  }
  return file_in(here.folders, abi, here);
}

std::string names_of(const MpiAbi& abi) {
  return abi.files[1] == nullptr ? abi.files[0] : fmt::format("{} or {}", abi.files[0], abi.files[1]);
}

MpiLibrary with_plugin(const MpiAbi& abi, std::string file, const MpiSurroundings& here) {
  if (here.has_plugin(abi)) return {&abi, std::move(file)};
  fail(TNT_UNSUPPORTED,
       "this process uses {}, with the ABI of {}, and this installation of Tarantella has no {}: install that MPI's mpicc and "
       "build again, take a wheel that has it, or start the ranks with `tarantella -n N -- script.py`",
       file, abi.name, abi.plugin);
}

MpiLibrary loaded_library(const MpiAbi& preferred, const MpiSurroundings& here) {
  const MpiAbi* found = nullptr;
  std::string file;
  for (const fs::path& library : here.loaded) {
    const MpiAbi* abi = abi_of(library);
    if (abi == nullptr || (found != nullptr && abi != &preferred)) continue;
    found = abi;
    file = library.string();
  }
  if (found != nullptr) return with_plugin(*found, file, here);
  fail(TNT_UNSUPPORTED,
       "the process has loaded the MPI {}, whose ABI Tarantella does not know: it knows those of Open MPI 3 to 5 "
       "(libmpi.so.40) and of MPICH, Intel MPI and MVAPICH (libmpi.so.12); take an MPI with one of them, or connect the ranks "
       "by TCP (tcp://host:port)",
       here.loaded.front().string());
}

}  // namespace

MpiSurroundings mpi_surroundings() {
  const fs::path own = plugin_folder();  // in a wheel PREFIX/lib/python3.N/site-packages/tarantella
  return {.environment = [](const char* name) -> const char* { return std::getenv(name); },
          .loaded = loaded_mpi_libraries(),
          .starters = starters_of_this_process(),
          .folders = {own, (own / "../../..").lexically_normal()},
          .exists =
              [](const fs::path& file) {
                std::error_code unreadable;
                return fs::exists(file, unreadable);
              },
          // It stays loaded: that is what it was found for.
          .loads = [](const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr; },
          .has_plugin = [own](const MpiAbi& abi) { return fs::exists(own / abi.plugin); }};
}

MpiLibrary find_mpi_library(const std::string& variable, const MpiSurroundings& here) {
  // srun can start both. Open MPI finds the others by PMIx, MPICH's by PMI. Its own mpirun starts one.
  const bool by_slurm = here.environment("SLURM_STEP_ID") != nullptr && variable != "OMPI_COMM_WORLD_SIZE";
  const bool by_pmi = variable == "PMI_SIZE" || (by_slurm && here.environment("PMIX_RANK") == nullptr);
  const MpiAbi& preferred = by_pmi ? mpich_abi : open_mpi_abi;
  const MpiAbi& other = by_pmi ? open_mpi_abi : mpich_abi;
  if (!here.loaded.empty()) return loaded_library(preferred, here);
  if (variable.empty()) {
    fail(TNT_UNSUPPORTED,
         "options->mpi_comm: the program has loaded no MPI library (such as {} or {}): link it with one that is a shared "
         "library",
         open_mpi_abi.files[0], mpich_abi.files[0]);
  }
  if (by_slurm) {
    for (const MpiAbi* abi : {&preferred, &other}) {
      if (!here.has_plugin(*abi)) continue;
      if (auto file = file_of(*abi, here)) return {abi, *file};
    }
    fail(TNT_UNSUPPORTED,
         "srun started this process as one of several ranks, and no MPI library was found that this installation of Tarantella "
         "has a plug-in for (of {} and {}): put the library's folder into LD_LIBRARY_PATH, or connect the ranks by TCP "
         "(tcp://host:port)",
         names_of(preferred), names_of(other));
  }
  if (auto file = file_of(preferred, here)) return with_plugin(preferred, *file, here);
  fail(TNT_UNSUPPORTED,
       "{} says that an mpirun with the ABI of {} started this process, and no library of it ({}) was found: put its folder "
       "into LD_LIBRARY_PATH on all hosts",
       variable, preferred.name, names_of(preferred));
}

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
