#include "base/plugin.hpp"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr char anchor = 0;  // an address in this library

}  // namespace

std::filesystem::path plugin_folder() {
  Dl_info info{};
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

const void* load_plugin(const PluginName& name) {
  const std::filesystem::path path = plugin_folder() / name.file;
  if (!std::filesystem::exists(path)) {
    fail(TNT_UNSUPPORTED, "this installation of Tarantella has no {}, which {}", name.file, name.missing);
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail(TNT_UNSUPPORTED, "cannot load {}: {}: {}", name.file, reason == nullptr ? "unknown error" : reason, name.unloadable);
  }
  using Entry = const void* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, name.symbol));
  const void* entries = entry == nullptr ? nullptr : entry();
  const char* version = entries == nullptr ? "another version" : *static_cast<const char* const*>(entries);
  if (std::strcmp(version, tnt_version()) != 0) {
    fail(TNT_UNSUPPORTED, "{} belongs to Tarantella {}, the library to {}: install one version", name.file, version,
         tnt_version());
  }
  return entries;
}

}  // namespace tnt
