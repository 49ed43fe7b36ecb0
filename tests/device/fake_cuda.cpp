#include "device/fake_cuda.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/cuda/bucket_kernels.hpp"

struct CUctx_st {
  int device = 0;
};
struct CUstream_st {
  int device = 0;
};
struct CUevent_st {
  int device = 0;
};
struct CUmemPoolHandle_st {
  int device = 0;
};
struct CUuserObject_st {
  void* data = nullptr;
  cudaHostFn_t destroy = nullptr;
};
struct CUgraph_st {
  std::vector<CUuserObject_st*> kept;
};

namespace {

struct Process {
  std::mutex mutex;
  int devices = 0;
  std::map<int, int> retained;  // references to primary contexts; a context of the runtime has one for ever
  std::set<int> created;
  std::set<int> loaded;  // the devices on which our kernels are
  std::vector<std::string> misuse;
};
Process& process() {
  static Process instance;
  return instance;
}

CUgraph_st* graph = nullptr;  // of the capture

CUctx_st* primary(int device) {
  static std::map<int, CUctx_st> contexts;
  CUctx_st& context = contexts[device];
  context.device = device;
  return &context;
}

thread_local std::vector<CUctx_st*> stack;  // contexts of this thread, the current one last
thread_local int chosen = 0;                // the device of a thread without a context

void create(int device) {
  const std::scoped_lock lock(process().mutex);
  process().created.insert(device);
  ++process().retained[device];
}

void make_current(int device) {
  create(device);
  if (stack.empty()) stack.push_back(nullptr);
  stack.back() = primary(device);
}

// A call of the runtime that needs a context.
int use_context() {
  if (stack.empty()) make_current(chosen);
  return stack.back()->device;
}

// A call on a stream or an event of another device than the current context's.
void use_context_of(const char* call, int device) {
  if (use_context() == device) return;
  const std::scoped_lock lock(process().mutex);
  process().misuse.push_back(std::string(call) + " with another device's context");
}

bool is_handle(cudaStream_t stream) { return reinterpret_cast<std::uintptr_t>(stream) > 2; }
void use_stream(const char* call, cudaStream_t stream) {
  is_handle(stream) ? use_context_of(call, stream->device) : static_cast<void>(use_context());
}

CUresult init(unsigned int) { return CUDA_SUCCESS; }
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < process().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult retain(CUcontext* context, CUdevice device) {
  create(device);
  *context = primary(device);
  return CUDA_SUCCESS;
}
CUresult release(CUdevice device) {
  const std::scoped_lock lock(process().mutex);
  --process().retained[device];
  return CUDA_SUCCESS;
}
CUresult get_state(CUdevice device, unsigned int* flags, int* active) {
  const std::scoped_lock lock(process().mutex);
  *flags = 0;
  *active = process().retained[device] > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* context) {
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}
CUresult push(CUcontext context) {
  stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext* context) {
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult get_device(CUdevice* device) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = stack.back()->device;
  return CUDA_SUCCESS;
}
CUresult get_context_of(CUstream stream, CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = is_handle(stream) ? primary(stream->device) : stack.back();
  return CUDA_SUCCESS;
}

void* driver_function(const std::string& name) {
  static const std::map<std::string, void*> all{{"cuInit", reinterpret_cast<void*>(init)},
                                                {"cuDeviceGet", reinterpret_cast<void*>(device_get)},
                                                {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain)},
                                                {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(release)},
                                                {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(get_state)},
                                                {"cuCtxGetCurrent", reinterpret_cast<void*>(get_current)},
                                                {"cuCtxPushCurrent", reinterpret_cast<void*>(push)},
                                                {"cuCtxPopCurrent", reinterpret_cast<void*>(pop)},
                                                {"cuCtxGetDevice", reinterpret_cast<void*>(get_device)},
                                                {"cuStreamGetCtx", reinterpret_cast<void*>(get_context_of)}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace

namespace tnt::testing {

void FakeCuda::reset(int devices) {
  const std::scoped_lock lock(process().mutex);
  process().devices = devices;
  process().retained.clear();
  process().created.clear();
  process().loaded.clear();
  process().misuse.clear();
}

std::set<int> FakeCuda::devices_with_contexts() {
  const std::scoped_lock lock(process().mutex);
  return process().created;
}

void FakeCuda::begin_capture() { graph = new CUgraph_st; }

void FakeCuda::destroy_graph() {
  for (CUuserObject_st* object : graph->kept) {
    object->destroy(object->data);
    delete object;
  }
  delete graph;
  graph = nullptr;
}

std::vector<std::string> FakeCuda::misuse() {
  const std::scoped_lock lock(process().mutex);
  return process().misuse;
}

}  // namespace tnt::testing

// The runtime's functions, as far as src/device/cuda calls them. Streams run their work at once.
extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = stack.empty() ? chosen : stack.back()->device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  chosen = device;
  make_current(device);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = process().devices;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult*) {
#endif
  *function = driver_function(name);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::strncpy(text, device == 0 ? "0000:00:00.0" : "0000:01:00.0", static_cast<std::size_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  use_context();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  *pool = new CUmemPoolHandle_st{properties->location.id};
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  use_context_of("cudaMemPoolDestroy", pool->device);
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  use_stream("cudaMallocFromPoolAsync", stream);
  if (bytes > std::size_t{1} << 40) return cudaErrorMemoryAllocation;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  use_context();
  *free = std::size_t{3} << 20;
  *total = std::size_t{80} << 20;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  use_stream("cudaFreeAsync", stream);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  use_context();
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  use_context();
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  *attributes = {};
  attributes->type = cudaMemoryTypeDevice;
  attributes->device = use_context();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  *stream = new CUstream_st{use_context()};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  use_stream("cudaStreamDestroy", stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  use_stream("cudaStreamQuery", stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  use_stream("cudaStreamSynchronize", stream);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  use_stream("cudaStreamIsCapturing", stream);
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* captured, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                        cudaGraph_t* captured, const cudaGraphNode_t**, size_t*) {
#endif
  use_stream("cudaStreamGetCaptureInfo", stream);
  *status = graph != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *captured = graph;
  return cudaSuccess;
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned int, unsigned int) {
  *object = new CUuserObject_st{data, destroy};
  return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t of, cudaUserObject_t object, unsigned int, unsigned int) {
  of->kept.push_back(object);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st{use_context()};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  use_context_of("cudaEventDestroy", event->device);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  use_context_of("cudaEventRecord", event->device);
  use_stream("cudaEventRecord", stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned int) {
  use_stream("cudaStreamWaitEvent", stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  use_context_of("cudaEventQuery", event->device);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  use_context_of("cudaEventElapsedTime", begin->device);
  use_context_of("cudaEventElapsedTime", end->device);
  *milliseconds = 0.0F;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  use_stream("cudaMemcpyAsync", stream);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  use_stream("cudaMemsetAsync", stream);
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  use_stream("cudaLaunchHostFunc", stream);
  function(data);
  return cudaSuccess;
}

}  // extern "C"

namespace tnt::gpu {

void load_kernels() {
  const int device = use_context();
  const std::scoped_lock lock(process().mutex);
  process().loaded.insert(device);
}

namespace {

// A kernel that CUDA has not loaded yet may wait for the device when it is launched.
void launch() {
  const int device = use_context();
  const std::scoped_lock lock(process().mutex);
  if (!process().loaded.contains(device)) process().misuse.emplace_back("a kernel is loaded when it is launched");
}

}  // namespace

void pack(const BucketLaunch&, Stream) { launch(); }
void unpack(const BucketLaunch&, Stream) { launch(); }
void accumulate(const BucketLaunch&, Stream) { launch(); }
void clip_factor(const Statistics*, std::uint32_t, double, double*, Stream) { launch(); }
void sum_statistics(const Statistics*, std::uint32_t, Statistics*, Stream) { launch(); }
void reduce(void*, const void* const*, int, std::size_t, tnt_dtype_t, Stream) { launch(); }

}  // namespace tnt::gpu
