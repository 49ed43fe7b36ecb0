// The parts of the library that lie beside it as libraries of their own, and are loaded when they are needed: what they stand
// on (MPI, CUDA) is not on every machine. A plug-in's one symbol is a function that returns its table of entries, which begins
// with the version that it was built as.
#pragma once

#include <string>

namespace tnt {

struct PluginName {
  const char* file;        // "libtarantella_mpi.so"
  const char* symbol;      // extern "C" const Entries* symbol()
  bool global = false;     // its symbols are for all libraries that are loaded later
  const char* missing;     // what follows "this installation of Tarantella has no FILE, which"
  const char* unloadable;  // what to do if it does not load
};

// It stays loaded. Throws TNT_UNSUPPORTED with the reason and what to do: there is no such file, something that it needs is
// missing, or it belongs to another version.
[[nodiscard]] const void* load_plugin(const PluginName& name);

template <typename Entries>
[[nodiscard]] const Entries& load_plugin_as(const PluginName& name) {
  return *static_cast<const Entries*>(load_plugin(name));
}

}  // namespace tnt
