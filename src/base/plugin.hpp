// Plug-ins: parts of the library in separate shared objects, loaded on demand, because their dependencies (MPI, CUDA) are not
// on every machine. The one symbol of a plug-in is a function that returns a table of entries. The table begins with the
// plug-in's version.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

#include "common/error.hpp"

namespace tnt {

struct PluginName {
  const char* file;        // "libtarantella_cuda.so"
  const char* symbol;      // extern "C" const Entries* symbol()
  const char* missing;     // the rest of the message "this installation of Tarantella has no FILE, which"
  const char* unloadable;  // what to do if loading fails
};

[[nodiscard]] std::filesystem::path plugin_folder();  // that of this library

// Loads a plug-in, which stays loaded. Throws TNT_UNSUPPORTED with the reason and the remedy: the file is missing, a dependency
// is missing, or it has another version.
[[nodiscard]] const void* load_plugin(const PluginName& name);

template <typename Entries>
[[nodiscard]] const Entries& load_plugin_as(const PluginName& name) {
  return *static_cast<const Entries*>(load_plugin(name));
}

// For the entries of a plug-in, which must not throw: the result of body, or otherwise and the reason.
template <typename Result, typename Body>
[[nodiscard]] Result without_throwing(Result otherwise, tnt_status_t* status, std::string* message, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    *status = error.status();
    *message = error.what();
  } catch (const std::exception& error) {
    *status = TNT_SYSTEM;
    *message = error.what();
  }
  return otherwise;
}

}  // namespace tnt
