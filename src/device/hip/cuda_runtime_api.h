// HIP under the names of CUDA that kernels/cuda and src/device/cuda use, so that these are compiled for AMD's GPUs as they are.
// hipcc includes it before each source of a kernel.
#pragma once

#ifdef __HIP__
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif

#include <cstddef>
#include <memory>

#define CUDART_VERSION 0  // none: no large parameters, no bulk copies

#define cudaDevAttrMemoryPoolsSupported hipDeviceAttributeMemoryPoolsSupported
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDeviceGetPCIBusId hipDeviceGetPCIBusId
#define cudaDeviceGetStreamPriorityRange hipDeviceGetStreamPriorityRange
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorNotReady hipErrorNotReady
#define cudaError_t hipError_t
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventDefault hipEventDefault
#define cudaEventDestroy hipEventDestroy
#define cudaEventDisableTiming hipEventDisableTiming
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventQuery hipEventQuery
#define cudaEvent_t hipEvent_t
#define cudaFreeHost hipHostFree
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaFuncAttributes hipFuncAttributes
#define cudaFuncGetAttributes hipFuncGetAttributes
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaGraph_t hipGraph_t
#define cudaHostAlloc hipHostMalloc
#define cudaHostAllocPortable hipHostMallocPortable
#define cudaMemAllocationTypePinned hipMemAllocationTypePinned
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemLocationTypeDevice hipMemLocationTypeDevice
#define cudaMemPoolAttrReleaseThreshold hipMemPoolAttrReleaseThreshold
#define cudaMemPoolCreate hipMemPoolCreate
#define cudaMemPoolDestroy hipMemPoolDestroy
#define cudaMemPoolProps hipMemPoolProps
#define cudaMemPoolSetAttribute hipMemPoolSetAttribute
#define cudaMemPool_t hipMemPool_t
#define cudaMemcpyDefault hipMemcpyDefault
#define cudaStreamCaptureMode hipStreamCaptureMode
#define cudaStreamCaptureModeRelaxed hipStreamCaptureModeRelaxed
#define cudaStreamCaptureStatus hipStreamCaptureStatus
#define cudaStreamCaptureStatusActive hipStreamCaptureStatusActive
#define cudaStreamCaptureStatusNone hipStreamCaptureStatusNone
#define cudaStreamCreateWithPriority hipStreamCreateWithPriority
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess
#define cudaThreadExchangeStreamCaptureMode hipThreadExchangeStreamCaptureMode

#define cudaEventRecord(event, stream) hipEventRecord(event, tnt::hip::known(stream))
#define cudaFreeAsync(memory, stream) hipFreeAsync(memory, tnt::hip::known(stream))
#define cudaLaunchHostFunc(stream, function, data) tnt::hip::launch_host_func(tnt::hip::known(stream), function, data)
#define cudaMallocFromPoolAsync(memory, bytes, pool, stream) \
  hipMallocFromPoolAsync(memory, bytes, pool, tnt::hip::known(stream))
#define cudaMemcpyAsync(to, from, bytes, kind, stream) hipMemcpyAsync(to, from, bytes, kind, tnt::hip::known(stream))
#define cudaMemsetAsync(memory, value, bytes, stream) hipMemsetAsync(memory, value, bytes, tnt::hip::known(stream))
#define cudaStreamDestroy(stream) hipStreamDestroy(tnt::hip::known(stream))
#define cudaStreamGetCaptureInfo_v2(stream, ...) hipStreamGetCaptureInfo_v2(tnt::hip::known(stream), __VA_ARGS__)
#define cudaStreamIsCapturing(stream, status) hipStreamIsCapturing(tnt::hip::known(stream), status)
#define cudaStreamQuery(stream) hipStreamQuery(tnt::hip::known(stream))
#define cudaStreamSynchronize(stream) hipStreamSynchronize(tnt::hip::known(stream))
#define cudaStreamWaitEvent(stream, event, flags) hipStreamWaitEvent(tnt::hip::known(stream), event, flags)

namespace tnt::hip {

// The null stream is HIP's legacy default stream; the library names it as CUDA does (cudaStreamLegacy, 1), because its own
// streams are never null. The per-thread default stream is 2 in both.
inline hipStream_t known(hipStream_t stream) { return reinterpret_cast<std::uintptr_t>(stream) == 1 ? nullptr : stream; }

#ifdef TNT_HIP_HAS_HOST_FUNCTIONS
inline hipError_t launch_host_func(hipStream_t stream, void (*function)(void*), void* data) {
  return hipLaunchHostFunc(stream, function, data);
}
#else  // HIP 5.2 declares hipLaunchHostFunc and does not export it
struct HostCall {
  void (*function)(void*);
  void* data;
};
inline hipError_t launch_host_func(hipStream_t stream, void (*function)(void*), void* data) {
  auto call = std::make_unique<HostCall>(HostCall{function, data});
  const auto run = [](hipStream_t /*stream*/, hipError_t /*status*/, void* owned) {
    const std::unique_ptr<HostCall> made(static_cast<HostCall*>(owned));
    made->function(made->data);
  };
  const hipError_t code = hipStreamAddCallback(stream, run, call.get(), 0);
  if (code == hipSuccess) (void)call.release();
  return code;
}
#endif

}  // namespace tnt::hip

#ifdef TNT_HIP_HAS_USER_OBJECTS
#define cudaGraphRetainUserObject hipGraphRetainUserObject
#define cudaGraphUserObjectMove hipGraphUserObjectMove
#define cudaUserObjectCreate hipUserObjectCreate
#define cudaUserObjectNoDestructorSync hipUserObjectNoDestructorSync
#define cudaUserObject_t hipUserObject_t
#else  // HIP 5.2 has none: a graph could outlive what its work uses, so capturing one ends with this error (hip_advice.cpp)
using cudaUserObject_t = void*;
constexpr unsigned int cudaUserObjectNoDestructorSync = 1;
constexpr unsigned int cudaGraphUserObjectMove = 1;
inline hipError_t cudaUserObjectCreate(cudaUserObject_t* /*object*/, void* /*data*/, void (* /*destroy*/)(void*),
                                       unsigned int /*references*/, unsigned int /*flags*/) {
  return hipErrorNotSupported;
}
inline hipError_t cudaGraphRetainUserObject(hipGraph_t /*graph*/, cudaUserObject_t /*object*/, unsigned int /*references*/,
                                            unsigned int /*flags*/) {
  return hipErrorNotSupported;
}
#endif

// In HIP 5, types of memory have other numbers and names, there is none for memory of the host that HIP does not know, and
// asking for that is an error.
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
inline hipError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  *attributes = {cudaMemoryTypeUnregistered, -1};
  hipPointerAttribute_t found{};
  const hipError_t code = hipPointerGetAttributes(&found, memory);
  if (code == hipErrorInvalidValue) {
    (void)hipGetLastError();
    return hipSuccess;
  }
  if (code != hipSuccess) return code;
#if HIP_VERSION_MAJOR >= 6
  const hipMemoryType type = found.type;
#else
  const hipMemoryType type = found.memoryType;
#endif
  attributes->device = found.device;
  if (found.isManaged != 0) {
    attributes->type = cudaMemoryTypeManaged;
  } else if (type == hipMemoryTypeDevice) {
    attributes->type = cudaMemoryTypeDevice;
  } else if (type == hipMemoryTypeHost) {
    attributes->type = cudaMemoryTypeHost;
  }
  return hipSuccess;
}

#ifdef __HIP__

#define __CUDACC__ 1
#define __grid_constant__  // parameters are copied to a thread's memory where they are indexed at run time
#define __trap __builtin_trap
#define __shfl_down_sync(mask, value, delta) __shfl_down(value, delta)

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  hipStream_t stream;
};

template <typename... Parameters, typename... Arguments>
hipError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  kernel<<<config->gridDim, config->blockDim, config->dynamicSmemBytes, tnt::hip::known(config->stream)>>>(arguments...);
  return hipGetLastError();
}

template <typename... Parameters>
hipError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), hipFuncAttribute attribute, int value) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

#endif
