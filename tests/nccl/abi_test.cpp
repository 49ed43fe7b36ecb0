// Our declarations of NCCL's C API compared with the real header, if it is installed.
#include "comm/nccl/abi.hpp"

#include <gtest/gtest.h>

#ifdef TNT_HAS_NCCL_HEADER
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace {

namespace ours = tnt::nccl_abi;

#define SAME_VALUE(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
SAME_VALUE(ncclInt8);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclInt64);
SAME_VALUE(ncclUint32);
SAME_VALUE(ncclUint64);
SAME_VALUE(ncclFloat16);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclFloat64);
SAME_VALUE(ncclBfloat16);
SAME_VALUE(ncclSum);
SAME_VALUE(ncclProd);
SAME_VALUE(ncclScalarHostImmediate);
SAME_VALUE(ncclMax);
SAME_VALUE(ncclMin);
SAME_VALUE(ncclAvg);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 3)
SAME_VALUE(ncclTimeout);
#endif

static_assert(ours::undefined_int == NCCL_CONFIG_UNDEF_INT);

static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId) && sizeof(::ncclUniqueId) == 128);
static_assert(sizeof(ours::ncclResult_t) == sizeof(::ncclResult_t));
static_assert(sizeof(ours::ncclDataType_t) == sizeof(::ncclDataType_t));
static_assert(sizeof(ours::ncclRedOp_t) == sizeof(::ncclRedOp_t));
static_assert(sizeof(ours::ncclStream_t) == sizeof(cudaStream_t));

#define SAME_FIELD(name)                                                                \
  static_assert(offsetof(ours::ncclConfig_t, name) == offsetof(::ncclConfig_t, name) && \
                std::is_same_v<decltype(ours::ncclConfig_t::name), decltype(::ncclConfig_t::name)>)
SAME_FIELD(size);
SAME_FIELD(magic);
SAME_FIELD(version);
SAME_FIELD(blocking);
SAME_FIELD(cgaClusterSize);
SAME_FIELD(minCTAs);
SAME_FIELD(maxCTAs);
SAME_FIELD(netName);
SAME_FIELD(splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME_FIELD(trafficClass);
SAME_FIELD(commName);
SAME_FIELD(collnetEnable);
SAME_FIELD(CTAPolicy);
SAME_FIELD(shrinkShare);
SAME_FIELD(nvlsCTAs);
SAME_FIELD(nChannelsPerNetPeer);
SAME_FIELD(nvlinkCentricSched);
// later versions append fields: the layout that a caller of 2.28 passes is valid as long as `size` says so
static_assert(sizeof(ours::ncclConfig_t) <= sizeof(::ncclConfig_t));
#endif

// A function takes as many arguments as ours, and each is passed in the same way.
template <typename Ours, typename Theirs>
struct Alike : std::bool_constant<sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs> &&
                                  std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>> {};
template <typename A, typename B>
struct AlikeFunctions : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
requires(sizeof...(A) == sizeof...(B)) struct AlikeFunctions<R(A...), S(B...)>
    : std::bool_constant<Alike<R, S>::value && (Alike<A, B>::value && ...)> {
};

#define SAME_FUNCTION(name) static_assert(AlikeFunctions<ours::name##_t, decltype(::name)>::value)
SAME_FUNCTION(ncclGetVersion);
SAME_FUNCTION(ncclGetErrorString);
SAME_FUNCTION(ncclGetLastError);
SAME_FUNCTION(ncclGetUniqueId);
SAME_FUNCTION(ncclCommInitRankConfig);
SAME_FUNCTION(ncclCommSplit);
SAME_FUNCTION(ncclCommGetAsyncError);
SAME_FUNCTION(ncclCommFinalize);
SAME_FUNCTION(ncclCommDestroy);
SAME_FUNCTION(ncclCommAbort);
SAME_FUNCTION(ncclAllReduce);
SAME_FUNCTION(ncclRedOpCreatePreMulSum);
SAME_FUNCTION(ncclRedOpDestroy);
SAME_FUNCTION(ncclReduce);
SAME_FUNCTION(ncclReduceScatter);
SAME_FUNCTION(ncclAllGather);
SAME_FUNCTION(ncclBroadcast);
SAME_FUNCTION(ncclSend);
SAME_FUNCTION(ncclRecv);
SAME_FUNCTION(ncclGroupStart);
SAME_FUNCTION(ncclGroupEnd);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
SAME_FUNCTION(ncclMemAlloc);
SAME_FUNCTION(ncclMemFree);
SAME_FUNCTION(ncclCommRegister);
SAME_FUNCTION(ncclCommDeregister);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
SAME_FUNCTION(ncclCommWindowRegister);
SAME_FUNCTION(ncclCommWindowDeregister);
static_assert(ours::symmetric_window == NCCL_WIN_COLL_SYMMETRIC);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME_FUNCTION(ncclAlltoAll);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
SAME_FUNCTION(ncclCommInitRankScalable);
#endif

TEST(NcclAbi, IsThatOfTheHeader) {
  const ::ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.magic, ours::config_magic);
}

}  // namespace
#else
TEST(NcclAbi, IsThatOfTheHeader) { GTEST_SKIP() << "no nccl.h, or no CUDA toolkit, was found when the tests were built"; }
#endif
