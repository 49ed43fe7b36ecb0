#include "comm/nccl/library.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <string_view>

#include "base/log.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

namespace fs = std::filesystem;

constexpr const char* nccl_file = "libnccl.so.2";
constexpr const char* rccl_file = "librccl.so.1";
constexpr char own_address = 0;  // an address in this library
constexpr int min_version = 21400;

const char* word(Vendor vendor) { return vendor == Vendor::nvidia ? "NCCL" : "RCCL"; }
const char* file_name(Vendor vendor) { return vendor == Vendor::nvidia ? nccl_file : rccl_file; }
const char* advice(Vendor vendor) {
  return vendor == Vendor::nvidia ? "install NVIDIA's wheel (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13), the system's "
                                    "package libnccl2, or name the file in TNT_NCCL_LIBRARY"
                                  : "install ROCm's package rccl, or name the file in TNT_NCCL_LIBRARY";
}

// Where it may lie, beside the folders of the system's loader.
std::vector<std::string> other_places(Vendor vendor, const std::string& own_file) {
  if (vendor == Vendor::nvidia) return nccl_wheels(own_file);
  return {fmt::format("/opt/rocm/lib/{}", rccl_file)};
}

std::string loader_error() {
  const char* words = dlerror();
  return words == nullptr ? "unknown error" : words;
}

std::string file_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) == 0 || info.dli_fname == nullptr ? "" : info.dli_fname;
}

// local: symbols are looked up by handle and must not replace those of another library
constexpr int how = RTLD_NOW | RTLD_LOCAL;

void* open_named(const std::string& named) {
  void* handle = dlopen(named.c_str(), how);
  if (handle == nullptr) fail(TNT_UNSUPPORTED, "TNT_NCCL_LIBRARY={} cannot be loaded: {}", named, loader_error());
  return handle;
}

void* open_found(Vendor vendor) {
  if (void* handle = dlopen(file_name(vendor), how | RTLD_NOLOAD); handle != nullptr) return handle;
  (void)dlerror();
  std::string tried;
  const auto try_file = [&](const std::string& file) {
    void* handle = dlopen(file.c_str(), how);
    if (handle == nullptr) tried += fmt::format("{}{}", tried.empty() ? "" : "; ", loader_error());
    return handle;
  };
  for (const std::string& file : other_places(vendor, file_of(&own_address))) {
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    if (void* handle = try_file(file); handle != nullptr) return handle;
  }
  if (void* handle = try_file(file_name(vendor)); handle != nullptr) return handle;
  fail(TNT_UNSUPPORTED, "no {} was found ({}): {}", word(vendor), tried, advice(vendor));
}

}  // namespace

// own_file: .../site-packages/tarantella/libtarantella.so.0.1, possibly one directory deeper
std::vector<std::string> nccl_wheels(const std::string& own_file) {
  std::vector<std::string> files;
  fs::path folder = fs::path(own_file).parent_path();
  for (int up = 0; up < 3 && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
    for (const char* place : {"nvidia/nccl/lib", "nvidia/cu13/lib"}) files.push_back(folder / place / nccl_file);
  }
  return files;
}

NcclLibrary::NcclLibrary(const std::string& named, Vendor vendor) : vendor_(vendor) {
  resolve(named.empty() ? open_found(vendor) : open_named(named));
  log(LogLevel::info, "{} ({})", name(), file_);
}

void NcclLibrary::resolve(void* handle) {
  std::string missing;
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
  };
  const auto need = [&](auto*& function, const char* name) {
    find(function, name);
    if (function == nullptr) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  };
#define TNT_NEED(name) need(functions_.name, "nccl" #name)
  TNT_NEED(GetVersion);
  TNT_NEED(GetErrorString);
  TNT_NEED(GetLastError);
  TNT_NEED(GetUniqueId);
  TNT_NEED(CommInitRankConfig);
  TNT_NEED(CommGetAsyncError);
  TNT_NEED(CommFinalize);
  TNT_NEED(CommDestroy);
  TNT_NEED(CommAbort);
  TNT_NEED(AllReduce);
  TNT_NEED(RedOpCreatePreMulSum);
  TNT_NEED(RedOpDestroy);
  TNT_NEED(Reduce);
  TNT_NEED(ReduceScatter);
  TNT_NEED(AllGather);
  TNT_NEED(Broadcast);
  TNT_NEED(Send);
  TNT_NEED(Recv);
  TNT_NEED(GroupStart);
  TNT_NEED(GroupEnd);
#undef TNT_NEED
  if (functions_.GetVersion != nullptr) {
    file_ = file_of(reinterpret_cast<const void*>(functions_.GetVersion));
    if (functions_.GetVersion(&version_) != nccl::ncclSuccess) version_ = 0;
  }
  if (launches_in_threads()) need(functions_.CommSplit, "ncclCommSplit");
  if (registers_memory()) {
    need(functions_.MemAlloc, "ncclMemAlloc");
    need(functions_.MemFree, "ncclMemFree");
    need(functions_.CommRegister, "ncclCommRegister");
    need(functions_.CommDeregister, "ncclCommDeregister");
  }
  if (!missing.empty() || version_ < min_version) {
    fail(TNT_UNSUPPORTED, "{} is {}{}{}, but {} or newer is needed: {}", file_.empty() ? file_name(vendor_) : file_, name(),
         missing.empty() ? "" : " without ", missing, nccl_version_text(min_version), advice(vendor_));
  }
  if (version_ >= 22300) find(functions_.CommInitRankScalable, "ncclCommInitRankScalable");
  if (version_ >= 22700) {
    find(functions_.CommWindowRegister, "ncclCommWindowRegister");
    find(functions_.CommWindowDeregister, "ncclCommWindowDeregister");
  }
  if (version_ >= 22800) find(functions_.AlltoAll, "ncclAlltoAll");
}

std::string NcclLibrary::name() const { return nccl_name(vendor_, version_); }

std::string NcclLibrary::error_text(nccl::ncclResult_t result, nccl::ncclComm_t comm) const {
  std::string_view last = functions_.GetLastError(comm) == nullptr ? "" : functions_.GetLastError(comm);
  while (!last.empty() && last.back() == '\n') last.remove_suffix(1);
  return fmt::format("{}{}{}", functions_.GetErrorString(result), last.empty() ? "" : ": ", last);
}

std::shared_ptr<const NcclLibrary> nccl_library(const std::string& named, Vendor vendor) {
  static std::mutex mutex;
  static std::shared_ptr<const NcclLibrary> instance;
  const std::scoped_lock lock(mutex);
  if (!instance) instance = std::make_shared<const NcclLibrary>(named, vendor);
  return instance;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string nccl_name(Vendor vendor, int version) { return fmt::format("{} {}", word(vendor), nccl_version_text(version)); }

nccl::ncclResult_t check_nccl(nccl::ncclResult_t result, const char* function, const NcclLibrary& library, const char* file,
                              int line) {
  if (result == nccl::ncclSuccess || result == nccl::ncclInProgress) return result;
  const std::string_view path(file);
  fail(TNT_SYSTEM, "{} failed: {} ({}, {}:{})", function, library.error_text(result, nullptr), library.name(),
       path.substr(path.rfind('/') + 1), line);
}

}  // namespace tnt
