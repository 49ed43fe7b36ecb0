#include "comm/mpi/load.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "comm/mpi/plugin.hpp"

namespace tnt {
namespace {

constexpr const char* file_name = "libtarantella_mpi.so";
constexpr char anchor = 0;  // something of this library

std::filesystem::path plugin_path() {
  Dl_info info{};
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return file_name;
  return std::filesystem::absolute(info.dli_fname).parent_path() / file_name;
}

const MpiPlugin& load() {
  const std::filesystem::path path = plugin_path();
  if (!std::filesystem::exists(path)) {
    fail(TNT_UNSUPPORTED,
         "this installation of Tarantella has no {}, which ranks that mpirun or srun started need: install MPI "
         "(libopenmpi-dev), "
         "build again, or start the ranks with `tarantella -n N -- script.py`",
         file_name);
  }
  // global: MPI libraries load parts of their own that look for their symbols there
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail(TNT_UNSUPPORTED, "cannot load {}: {}: install the MPI that it was built for", file_name,
         reason == nullptr ? "unknown error" : reason);
  }
  using Entry = const MpiPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, mpi_plugin_symbol));
  const MpiPlugin* plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || std::string(plugin->version) != tnt_version()) {
    fail(TNT_UNSUPPORTED, "{} is of Tarantella {}, the library of {}: install one version", file_name,
         plugin == nullptr ? "another version" : plugin->version, tnt_version());
  }
  return *plugin;
}

}  // namespace

std::shared_ptr<Network> open_mpi_network() {
  tnt_status_t status = TNT_SYSTEM;
  std::string sentence;
  Network* network = load().open(&status, &sentence);
  if (network == nullptr) throw Error(status, sentence);
  return std::shared_ptr<Network>(network);
}

}  // namespace tnt
