// NCCL, opened at run time, or RCCL, which has the same functions for AMD's devices and reports the version of the NCCL that it
// follows. A process has one such library: the one it has already loaded, if any.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/abi.hpp"
#include "device/device.hpp"

namespace tnt {

namespace nccl = nccl_abi;

// The functions of the library. Functions of newer versions are null in older ones.
struct NcclFunctions {
  nccl::ncclGetVersion_t* GetVersion = nullptr;
  nccl::ncclGetErrorString_t* GetErrorString = nullptr;
  nccl::ncclGetLastError_t* GetLastError = nullptr;
  nccl::ncclGetUniqueId_t* GetUniqueId = nullptr;
  nccl::ncclCommInitRankConfig_t* CommInitRankConfig = nullptr;
  nccl::ncclCommInitRankScalable_t* CommInitRankScalable = nullptr;  // 2.23
  nccl::ncclCommSplit_t* CommSplit = nullptr;                        // where launches_in_threads()
  nccl::ncclCommGetAsyncError_t* CommGetAsyncError = nullptr;
  nccl::ncclCommFinalize_t* CommFinalize = nullptr;
  nccl::ncclCommDestroy_t* CommDestroy = nullptr;
  nccl::ncclCommAbort_t* CommAbort = nullptr;
  nccl::ncclAllReduce_t* AllReduce = nullptr;
  nccl::ncclRedOpCreatePreMulSum_t* RedOpCreatePreMulSum = nullptr;
  nccl::ncclRedOpDestroy_t* RedOpDestroy = nullptr;
  nccl::ncclReduce_t* Reduce = nullptr;
  nccl::ncclReduceScatter_t* ReduceScatter = nullptr;
  nccl::ncclAllGather_t* AllGather = nullptr;
  nccl::ncclBroadcast_t* Broadcast = nullptr;
  nccl::ncclAlltoAll_t* AlltoAll = nullptr;  // 2.28
  nccl::ncclSend_t* Send = nullptr;
  nccl::ncclRecv_t* Recv = nullptr;
  nccl::ncclMemAlloc_t* MemAlloc = nullptr;  // where registers_memory(), as the next three
  nccl::ncclMemFree_t* MemFree = nullptr;
  nccl::ncclCommRegister_t* CommRegister = nullptr;
  nccl::ncclCommDeregister_t* CommDeregister = nullptr;
  nccl::ncclCommWindowRegister_t* CommWindowRegister = nullptr;  // 2.27
  nccl::ncclCommWindowDeregister_t* CommWindowDeregister = nullptr;
  nccl::ncclGroupStart_t* GroupStart = nullptr;
  nccl::ncclGroupEnd_t* GroupEnd = nullptr;
};

class NcclLibrary {
 public:
  // Opens the first library of this list for the devices of a vendor:
  //   named (TNT_NCCL_LIBRARY; if set, no other is tried);
  //   a library that the process has loaded;
  //   NCCL: the wheels nvidia-nccl-cu12 and nvidia-nccl-cu13 in our site-packages (TensorFlow installs the first);
  //   the system's library; RCCL: that of /opt/rocm.
  // It stays loaded. Throws TNT_UNSUPPORTED that lists the attempts and what to install.
  explicit NcclLibrary(const std::string& named, Vendor vendor = Vendor::nvidia);

  [[nodiscard]] const NcclFunctions* operator->() const noexcept { return &functions_; }
  [[nodiscard]] int version() const noexcept { return version_; }  // 22809
  [[nodiscard]] Vendor vendor() const noexcept { return vendor_; }
  [[nodiscard]] std::string name() const;  // "NCCL 2.28.9"
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  // From 2.23 on a non-blocking communicator starts a thread for each collective (groupLaunchNonBlocking in NCCL's group.cc).
  [[nodiscard]] bool launches_in_threads() const noexcept { return version_ >= 22300; }
  [[nodiscard]] bool registers_memory() const noexcept { return version_ >= 21900; }
  // NCCL's text for a result: its name and NCCL's last error message. comm: null if it may have been destroyed.
  [[nodiscard]] std::string error_text(nccl::ncclResult_t result, nccl::ncclComm_t comm) const;

 private:
  void resolve(void* handle);

  NcclFunctions functions_;
  Vendor vendor_;
  int version_ = 0;
  std::string file_;
};

// The library of the process. The first call decides which.
[[nodiscard]] std::shared_ptr<const NcclLibrary> nccl_library(const std::string& named, Vendor vendor);

[[nodiscard]] std::string nccl_version_text(int version);         // "2.28.9" for 22809
[[nodiscard]] std::string nccl_name(Vendor vendor, int version);  // "RCCL 2.28.9"

// Paths of NCCL in the wheels, relative to a file of ours in site-packages/tarantella.
[[nodiscard]] std::vector<std::string> nccl_wheels(const std::string& own_file);

// Returns ncclSuccess and ncclInProgress; throws TNT_SYSTEM with NCCL's message for other results.
nccl::ncclResult_t check_nccl(nccl::ncclResult_t result, const char* function, const NcclLibrary& library, const char* file,
                              int line);

}  // namespace tnt

// TNT_NCCL(library, CommFinalize, comm): calls ncclCommFinalize(comm) and checks it.
#define TNT_NCCL(library, function, ...) \
  ::tnt::check_nccl((library)->function(__VA_ARGS__), "nccl" #function, library, __FILE__, __LINE__)
