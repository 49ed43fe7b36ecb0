// NCCL, opened at run time: one for a process, the one that the program already has if it has one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_abi.hpp"

namespace tnt {

namespace nccl = nccl_abi;

// The functions, as the library has them; those that only newer ones have are null in older ones.
struct NcclFunctions {
  nccl::ncclGetVersion_t* GetVersion = nullptr;
  nccl::ncclGetErrorString_t* GetErrorString = nullptr;
  nccl::ncclGetLastError_t* GetLastError = nullptr;
  nccl::ncclGetUniqueId_t* GetUniqueId = nullptr;
  nccl::ncclCommInitRankConfig_t* CommInitRankConfig = nullptr;
  nccl::ncclCommInitRankScalable_t* CommInitRankScalable = nullptr;  // 2.23
  nccl::ncclCommSplit_t* CommSplit = nullptr;                        // 2.18
  nccl::ncclCommGetAsyncError_t* CommGetAsyncError = nullptr;
  nccl::ncclCommFinalize_t* CommFinalize = nullptr;
  nccl::ncclCommDestroy_t* CommDestroy = nullptr;
  nccl::ncclCommAbort_t* CommAbort = nullptr;
  nccl::ncclAllReduce_t* AllReduce = nullptr;
  nccl::ncclReduceScatter_t* ReduceScatter = nullptr;
  nccl::ncclAllGather_t* AllGather = nullptr;
  nccl::ncclBroadcast_t* Broadcast = nullptr;
  nccl::ncclSend_t* Send = nullptr;
  nccl::ncclRecv_t* Recv = nullptr;
  nccl::ncclGroupStart_t* GroupStart = nullptr;
  nccl::ncclGroupEnd_t* GroupEnd = nullptr;
};

class NcclLibrary {
 public:
  // Opens the first that is there of
  //   named (TNT_NCCL_LIBRARY; then no other), one that the process has loaded, those of the wheels nvidia-nccl-cu12 and
  //   nvidia-nccl-cu13 in the site-packages that this library is in (TensorFlow brings the first), the system's.
  // Throws TNT_UNSUPPORTED that says what was tried and what to install. Stays loaded.
  explicit NcclLibrary(const std::string& named);

  [[nodiscard]] const NcclFunctions* operator->() const noexcept { return &functions_; }
  [[nodiscard]] int version() const noexcept { return version_; }  // 22809
  [[nodiscard]] std::string name() const;                          // "NCCL 2.28.9"
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  // What NCCL says about a result: its name for it and what it last complained of; of a communicator, null if it may be gone.
  [[nodiscard]] std::string error_text(nccl::ncclResult_t result, nccl::ncclComm_t comm) const;

 private:
  void resolve(void* handle);

  NcclFunctions functions_;
  int version_ = 0;
  std::string file_;
};

// The process' one. The first call decides which.
[[nodiscard]] std::shared_ptr<const NcclLibrary> nccl_library(const std::string& named);

[[nodiscard]] std::string nccl_version_text(int version);  // "2.28.9" for 22809

// Where the wheels' libraries would be, seen from a file of ours in site-packages/tarantella.
[[nodiscard]] std::vector<std::string> nccl_wheels(const std::string& own_file);

// Throws TNT_SYSTEM with NCCL's words unless the call was taken (ncclSuccess) or will be (ncclInProgress), which is returned.
nccl::ncclResult_t check_nccl(nccl::ncclResult_t result, const char* function, const NcclLibrary& library, const char* file,
                              int line);

}  // namespace tnt

// TNT_NCCL(library, CommFinalize, comm): calls ncclCommFinalize(comm) and checks it.
#define TNT_NCCL(library, function, ...) \
  ::tnt::check_nccl((library)->function(__VA_ARGS__), "nccl" #function, library, __FILE__, __LINE__)
