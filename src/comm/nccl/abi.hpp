// The part of NCCL's C API (nccl.h, versions 2.14 to 2.30) that we use. It is declared here because the build needs neither
// NCCL nor CUDA; the library is opened at run time (library.hpp). tests/nccl/abi_test.cpp compares it with the real
// header.
#pragma once

#include <climits>
#include <cstddef>

namespace tnt::nccl_abi {

extern "C" {

// NOLINTBEGIN(modernize-*): declarations of a C API

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef void* ncclStream_t;  // cudaStream_t

constexpr int undefined_int = INT_MIN;  // NCCL_CONFIG_UNDEF_INT
constexpr int symmetric_window = 0x01;  // NCCL_WIN_COLL_SYMMETRIC
constexpr unsigned int config_magic = 0xcafebeefU;
constexpr unsigned int config_version = 22800;

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8  // since 2.30
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
} ncclDataType_t;

// ncclMaxRedOp: operations that are created have greater numbers than ncclAvg.
typedef enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

// As of 2.28. A library reads as many bytes as it knows: older ones read fewer, newer ones check `size` and `version`.
typedef struct {
  std::size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

typedef ncclResult_t ncclGetVersion_t(int* version);
typedef const char* ncclGetErrorString_t(ncclResult_t result);
typedef const char* ncclGetLastError_t(ncclComm_t comm);
typedef ncclResult_t ncclGetUniqueId_t(ncclUniqueId* id);
typedef ncclResult_t ncclCommInitRankConfig_t(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
typedef ncclResult_t ncclCommInitRankScalable_t(ncclComm_t* comm, int ranks, int rank, int n_ids, ncclUniqueId* ids,
                                                ncclConfig_t* config);                                              // 2.23
typedef ncclResult_t ncclCommSplit_t(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config);  // 2.18
typedef ncclResult_t ncclCommGetAsyncError_t(ncclComm_t comm, ncclResult_t* error);
typedef ncclResult_t ncclCommFinalize_t(ncclComm_t comm);
typedef ncclResult_t ncclCommDestroy_t(ncclComm_t comm);
typedef ncclResult_t ncclCommAbort_t(ncclComm_t comm);
typedef ncclResult_t ncclAllReduce_t(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, ncclStream_t stream);
typedef ncclResult_t ncclRedOpCreatePreMulSum_t(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                                ncclScalarResidence_t residence, ncclComm_t comm);
typedef ncclResult_t ncclRedOpDestroy_t(ncclRedOp_t op, ncclComm_t comm);
typedef ncclResult_t ncclReduce_t(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                                  ncclComm_t comm, ncclStream_t stream);
typedef ncclResult_t ncclReduceScatter_t(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                         ncclComm_t comm, ncclStream_t stream);
typedef ncclResult_t ncclAllGather_t(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                     ncclStream_t stream);
typedef ncclResult_t ncclBroadcast_t(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, ncclStream_t stream);
typedef ncclResult_t ncclAlltoAll_t(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                    ncclStream_t stream);  // 2.28
typedef ncclResult_t ncclSend_t(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                ncclStream_t stream);
typedef ncclResult_t ncclRecv_t(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                ncclStream_t stream);
typedef ncclResult_t ncclMemAlloc_t(void** memory, std::size_t bytes);  // these four: 2.19
typedef ncclResult_t ncclMemFree_t(void* memory);
typedef ncclResult_t ncclCommRegister_t(const ncclComm_t comm, void* memory, std::size_t bytes, void** registration);
typedef ncclResult_t ncclCommDeregister_t(const ncclComm_t comm, void* registration);
typedef ncclResult_t ncclCommWindowRegister_t(ncclComm_t comm, void* memory, std::size_t bytes, ncclWindow_t* window,
                                              int flags);  // 2.27
typedef ncclResult_t ncclCommWindowDeregister_t(ncclComm_t comm, ncclWindow_t window);
typedef ncclResult_t ncclGroupStart_t(void);
typedef ncclResult_t ncclGroupEnd_t(void);

// NOLINTEND(modernize-*)

}  // extern "C"

}  // namespace tnt::nccl_abi
