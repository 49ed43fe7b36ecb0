#include "hip/fake_hip.hpp"

#include <hip/hip_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

struct ihipStream_t {
  int device = 0;
};
struct ihipEvent_t {
  int device = 0;
  bool recorded = false;
};
struct ihipMemPoolHandle_t {
  int device = 0;
};
struct ihipGraph {
  std::vector<std::pair<void*, void (*)(void*)>> kept;
};

namespace {

struct Allocation {
  hipMemoryType type;
  int device;
};

struct Process {
  std::mutex mutex;
  int devices = 0;
  std::map<const void*, std::string> kernels;    // by the host's stub
  std::set<std::pair<int, const void*>> loaded;  // on a device
  std::map<const void*, Allocation> allocations;
  std::vector<tnt::testing::Launch> launches;
  std::vector<std::string> misuse;
  std::vector<void*> streams_used;
  ihipGraph* graph = nullptr;
};
Process& process() {
  static Process instance;
  return instance;
}

thread_local int current = 0;
thread_local hipError_t last = hipSuccess;
struct Configuration {
  dim3 grid, block;
  size_t shared;
  hipStream_t stream;
};
thread_local std::vector<Configuration> configurations;

hipError_t answer(hipError_t code) {
  if (code != hipSuccess) last = code;
  return code;
}

// Work of another device than the thread's current one would be refused, or allocate on the wrong one.
void expect_device(const char* call, int device) {
  const std::scoped_lock lock(process().mutex);
  if (device != current) process().misuse.push_back(std::string(call) + " while another device is current");
}
void use(const char* call, hipStream_t stream) {
  if (reinterpret_cast<std::uintptr_t>(stream) == 1) {  // HIP's null stream is 0, and 1 a wrong address
    const std::scoped_lock lock(process().mutex);
    process().misuse.push_back(std::string(call) + " on CUDA's name of the legacy stream");
  } else if (reinterpret_cast<std::uintptr_t>(stream) > 2) {
    expect_device(call, stream->device);
  }
}

hipError_t allocate(void** memory, size_t bytes, Allocation allocation) {
  *memory = std::malloc(bytes);
  const std::scoped_lock lock(process().mutex);
  process().allocations[*memory] = allocation;
  return hipSuccess;
}
hipError_t release(void* memory) {
  const std::scoped_lock lock(process().mutex);
  if (process().allocations.erase(memory) == 0) process().misuse.emplace_back("memory is released that was not allocated");
  std::free(memory);
  return hipSuccess;
}

}  // namespace

namespace tnt::testing {

void FakeHip::reset(int devices) {
  const std::scoped_lock lock(process().mutex);
  process().devices = devices;
  process().loaded.clear();
  process().allocations.clear();
  process().launches.clear();
  process().misuse.clear();
  process().streams_used.clear();
}
void FakeHip::begin_capture() { process().graph = new ihipGraph; }
void FakeHip::end_capture() {
  for (const auto& [data, destroy] : process().graph->kept) destroy(data);
  delete std::exchange(process().graph, nullptr);
}
std::vector<std::string> FakeHip::misuse() { return process().misuse; }
std::vector<Launch> FakeHip::launches() { return process().launches; }
std::size_t FakeHip::kernels() { return process().kernels.size(); }
std::size_t FakeHip::loaded_kernels(int device) {
  std::size_t n = 0;
  for (const auto& [where, kernel] : process().loaded) n += where == device ? 1 : 0;
  return n;
}
std::size_t FakeHip::allocations() { return process().allocations.size(); }
std::vector<void*> FakeHip::streams_used() { return process().streams_used; }
int FakeHip::last_error() { return last; }

}  // namespace tnt::testing

extern "C" {

// What the compiler's code calls, in the constructors of a library with kernels and in a launch.
void** __hipRegisterFatBinary(const void* /*data*/) {
  static void* module = nullptr;
  return &module;
}
void __hipUnregisterFatBinary(void** /*modules*/) {}
void __hipRegisterFunction(void** /*modules*/, const void* stub, char* /*device_function*/, const char* name,
                           unsigned int /*limit*/, void* /*thread*/, void* /*block*/, void* /*block_size*/, void* /*grid*/,
                           int* /*warp_size*/) {
  process().kernels[stub] = name;
}
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
  *grid = configurations.back().grid;
  *block = configurations.back().block;
  *shared = configurations.back().shared;
  *stream = configurations.back().stream;
  configurations.pop_back();
  return hipSuccess;
}
hipError_t hipLaunchKernel(const void* stub, dim3 grid, dim3 block, void** /*arguments*/, size_t /*shared*/,
                           hipStream_t stream) {
  use("a launch", stream);
  const std::scoped_lock lock(process().mutex);
  if (!process().loaded.contains({current, stub})) process().misuse.emplace_back("a kernel is loaded when it is launched");
  process().launches.push_back({process().kernels.at(stub), current, grid.x, block.x, stream});
  return hipSuccess;
}
hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* stub) {
  *attributes = {};
  const std::scoped_lock lock(process().mutex);
  process().loaded.insert({current, stub});
  return hipSuccess;
}
hipError_t hipFuncSetAttribute(const void* /*stub*/, hipFuncAttribute /*attribute*/, int /*value*/) { return hipSuccess; }

hipError_t hipInit(unsigned int /*flags*/) { return hipSuccess; }
hipError_t hipGetDevice(int* device) {
  *device = current;
  return hipSuccess;
}
hipError_t hipSetDevice(int device) {
  if (device < 0 || device >= process().devices) return answer(hipErrorInvalidDevice);
  current = device;
  return hipSuccess;
}
hipError_t hipGetDeviceCount(int* count) {
  *count = process().devices;
  return *count > 0 ? hipSuccess : answer(hipErrorNoDevice);
}
hipError_t hipDriverGetVersion(int* version) {
  *version = HIP_VERSION;
  return hipSuccess;
}
const char* hipGetErrorString(hipError_t code) { return code == hipErrorNotSupported ? "operation not supported" : "an error"; }
const char* hipGetErrorName(hipError_t code) { return code == hipErrorNotSupported ? "hipErrorNotSupported" : "hipError"; }
hipError_t hipGetLastError() { return std::exchange(last, hipSuccess); }
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::strncpy(text, device == 0 ? "0000:c1:00.0" : "0000:c6:00.0", static_cast<std::size_t>(bytes));
  return hipSuccess;
}
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 1;
  *greatest = -1;
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t /*attribute*/, int /*device*/) {
  *value = 1;
  return hipSuccess;
}

hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties) {
  *pool = new ihipMemPoolHandle_t{properties->location.id};
  return hipSuccess;
}
hipError_t hipMemPoolSetAttribute(hipMemPool_t /*pool*/, hipMemPoolAttr /*attribute*/, void* /*value*/) { return hipSuccess; }
hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
  delete pool;
  return hipSuccess;
}
hipError_t hipMallocFromPoolAsync(void** memory, size_t bytes, hipMemPool_t pool, hipStream_t stream) {
  use("hipMallocFromPoolAsync", stream);
  if (bytes > std::size_t{1} << 40) return answer(hipErrorOutOfMemory);
  return allocate(memory, bytes, {hipMemoryTypeDevice, pool->device});
}
hipError_t hipFreeAsync(void* memory, hipStream_t stream) {
  use("hipFreeAsync", stream);
  return release(memory);
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  *free = std::size_t{3} << 20;
  *total = std::size_t{80} << 20;
  return hipSuccess;
}
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned int flags) {
  if (flags != hipHostMallocPortable) return answer(hipErrorInvalidValue);
  return allocate(memory, bytes, {hipMemoryTypeHost, current});
}
hipError_t hipHostFree(void* memory) { return release(memory); }
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* memory) {
  const std::scoped_lock lock(process().mutex);
  const auto found = process().allocations.find(memory);
  if (found == process().allocations.end()) return answer(hipErrorInvalidValue);
  *attributes = {};
#if HIP_VERSION_MAJOR >= 6
  attributes->type = found->second.type;
#else
  attributes->memoryType = found->second.type;
#endif
  attributes->device = found->second.device;
  return hipSuccess;
}

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int /*flags*/, int /*priority*/) {
  *stream = new ihipStream_t{current};
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  use("hipStreamDestroy", stream);
  delete stream;
  return hipSuccess;
}
int hipGetStreamDeviceId(hipStream_t stream) { return stream->device; }
hipError_t hipStreamQuery(hipStream_t stream) {
  use("hipStreamQuery", stream);
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  use("hipStreamSynchronize", stream);
  return hipSuccess;
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  use("hipStreamIsCapturing", stream);
  *status = process().graph == nullptr ? hipStreamCaptureStatusNone : hipStreamCaptureStatusActive;
  return hipSuccess;
}
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* /*mode*/) { return hipSuccess; }
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* /*id*/,
                                      hipGraph_t* graph, const hipGraphNode_t** /*nodes*/, size_t* /*count*/) {
  *graph = process().graph;
  return hipStreamIsCapturing(stream, status);
}
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned int /*flags*/) {
  use("hipStreamAddCallback", stream);
  callback(stream, hipSuccess, data);
  return hipSuccess;
}
#if HIP_VERSION >= 50300000  // HIP 5.2 has no user objects
hipError_t hipUserObjectCreate(hipUserObject_t* object, void* data, hipHostFn_t destroy, unsigned int /*references*/,
                               unsigned int /*flags*/) {
  *object = reinterpret_cast<hipUserObject_t>(new std::pair<void*, hipHostFn_t>(data, destroy));
  return hipSuccess;
}
hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int /*count*/, unsigned int /*flags*/) {
  const auto* made = reinterpret_cast<std::pair<void*, hipHostFn_t>*>(object);
  graph->kept.emplace_back(*made);
  delete made;
  return hipSuccess;
}
#endif
hipError_t hipLaunchHostFunc(hipStream_t stream, void (*function)(void*), void* data) {
  use("hipLaunchHostFunc", stream);
  function(data);
  return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned /*flags*/) {
  *event = new ihipEvent_t{current};
  return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  use("hipEventRecord", stream);
  expect_device("hipEventRecord", event->device);
  event->recorded = true;
  return hipSuccess;
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t /*event*/, unsigned int /*flags*/) {
  use("hipStreamWaitEvent", stream);
  return hipSuccess;
}
hipError_t hipEventQuery(hipEvent_t event) { return event->recorded ? hipSuccess : answer(hipErrorNotReady); }
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t /*begin*/, hipEvent_t /*end*/) {
  *milliseconds = 2.0F;
  return hipSuccess;
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  use("hipMemcpyAsync", stream);
  if (kind != hipMemcpyDefault) return answer(hipErrorInvalidValue);
  std::memcpy(to, from, bytes);
  const std::scoped_lock lock(process().mutex);
  process().streams_used.push_back(stream);
  return hipSuccess;
}
hipError_t hipMemsetAsync(void* memory, int value, size_t bytes, hipStream_t stream) {
  use("hipMemsetAsync", stream);
  std::memset(memory, value, bytes);
  return hipSuccess;
}

}  // extern "C"
