#include "device/cuda/cuda_device.hpp"

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "common/error.hpp"
#include "device/cuda/guards.hpp"
#include "device/device.hpp"
#include "kernels/cuda/cuda_call.hpp"

namespace tnt {
namespace {

cudaStream_t cuda(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t cuda_event(EventHandle event) { return static_cast<cudaEvent_t>(event); }

// A pool that never returns memory to the system, so that allocating a bucket again costs nothing and waits for nothing.
cudaMemPool_t make_pool(int device) {
  int supported = 0;
  TNT_CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
  if (supported == 0) fail(TNT_UNSUPPORTED, "device {} has no stream-ordered memory, which the GPU path needs", device);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  TNT_CUDA(cudaMemPoolCreate(&pool, &properties));
  auto threshold = std::numeric_limits<std::uint64_t>::max();
  TNT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  return pool;
}

cudaGraph_t captured_graph(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  TNT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  TNT_CUDA(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr));
#endif
  if (status != cudaStreamCaptureStatusActive) fail(TNT_SYSTEM, "the stream is not being captured into a graph");
  return graph;
}

// "Not ready" is an answer, but CUDA also stores it as the thread's last error, where the next launch would find it.
bool not_ready(cudaError_t answer) {
  if (answer != cudaErrorNotReady) return false;
  (void)cudaGetLastError();
  return true;
}

}  // namespace

// Functions that release resources are noexcept and ignore CUDA's errors. With our own handles an error can only be a sticky
// one, which the next call reports too, or a consequence of the process ending.

CudaDevice::CudaDevice(int index) : index_(index), context_(index) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaDeviceGetStreamPriorityRange(&normal_priority_, &high_priority_));
  gpu::load_kernels();
  pool_ = make_pool(index_);
}

std::string CudaDevice::bus_id() const {
  std::array<char, 32> text{};
  TNT_CUDA(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index_));
  return text.data();
}

void CudaDevice::with_current_device(const std::function<void()>& body) {
  const ContextGuard current(context_);
  body();
}

CudaDevice::~CudaDevice() {
  release_in_context([&] { (void)cudaMemPoolDestroy(pool_); });
}

// A call without a context would create one on device 0. The context is retained, so pushing it cannot fail unless the process
// is ending.
template <typename Release>
void CudaDevice::release_in_context(Release&& release) noexcept {
  try {
    const ContextGuard current(context_);
    std::forward<Release>(release)();
  } catch (const Error&) {  // the driver has gone, and the resource with it
  }
}

void CudaDevice::fail_out_of_memory(std::size_t bytes) {
  static_cast<void>(cudaGetLastError());
  std::size_t free = 0;
  std::size_t total = 0;
  TNT_CUDA(cudaMemGetInfo(&free, &total));
  const auto mebibytes = [](std::size_t of) { return static_cast<double>(of) / (1 << 20); };
  fail(TNT_SYSTEM,
       "GPU {} has {:.0f} of {:.0f} MiB free, and {:.0f} are needed at once (cudaMallocFromPoolAsync): let the program "
       "leave some (TensorFlow: TF_FORCE_GPU_ALLOW_GROWTH=true, or a smaller batch), or make smaller buckets "
       "(TNT_FUSION_THRESHOLD)",
       index_, mebibytes(free), mebibytes(total), mebibytes(bytes));
}

void* CudaDevice::allocate(std::size_t bytes, StreamHandle stream) {
  const ContextGuard current(context_);
  void* memory = nullptr;
  const cudaError_t code = cudaMallocFromPoolAsync(&memory, bytes, pool_, cuda(stream));
  if (code == cudaErrorMemoryAllocation) fail_out_of_memory(bytes);
  if (code != cudaSuccess) fail_cuda(code, "cudaMallocFromPoolAsync(&memory, bytes, pool_, stream)", __FILE__, __LINE__);
  return memory;
}

void CudaDevice::release(void* memory, StreamHandle stream) noexcept {
  release_in_context([&] { (void)cudaFreeAsync(memory, cuda(stream)); });
}

void* CudaDevice::allocate_pinned(std::size_t bytes) {
  const ContextGuard current(context_);
  const RelaxedCaptureGuard relaxed;
  void* memory = nullptr;
  TNT_CUDA(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
  return memory;
}

void CudaDevice::release_pinned(void* memory) noexcept {
  release_in_context([&] {
    const RelaxedCaptureGuard relaxed;
    (void)cudaFreeHost(memory);
  });
}

PointerAttributes CudaDevice::pointer_attributes(const void* memory) {
  const ContextGuard current(context_);
  cudaPointerAttributes attributes{};
  TNT_CUDA(cudaPointerGetAttributes(&attributes, memory));
  switch (attributes.type) {
    case cudaMemoryTypeHost: return {PointerAttributes::Kind::pinned, -1};
    case cudaMemoryTypeDevice: return {PointerAttributes::Kind::device, attributes.device};
    case cudaMemoryTypeManaged: return {PointerAttributes::Kind::managed, attributes.device};
    case cudaMemoryTypeUnregistered: break;
  }
  return {PointerAttributes::Kind::host, -1};
}

StreamHandle CudaDevice::make_stream(Priority priority) {
  const ContextGuard current(context_);
  cudaStream_t stream = nullptr;
  TNT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                        priority == Priority::high ? high_priority_ : normal_priority_));
  return stream;
}

void CudaDevice::destroy_stream(StreamHandle stream) noexcept {
  release_in_context([&] { (void)cudaStreamDestroy(cuda(stream)); });
}

bool CudaDevice::idle(StreamHandle stream) {
  const ContextGuard current(context_);
  const RelaxedCaptureGuard relaxed;
  const cudaError_t answer = cudaStreamQuery(cuda(stream));
  if (not_ready(answer)) return false;
  if (answer != cudaSuccess) fail_cuda(answer, "cudaStreamQuery(stream)", __FILE__, __LINE__);
  return true;
}

void CudaDevice::synchronize(StreamHandle stream) {
  const ContextGuard current(context_);
  const RelaxedCaptureGuard relaxed;
  TNT_CUDA(cudaStreamSynchronize(cuda(stream)));
}

int CudaDevice::device_of(StreamHandle stream) { return device_of_stream(cuda(stream)); }

bool CudaDevice::capturing(StreamHandle stream) {
  const ContextGuard current(context_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TNT_CUDA(cudaStreamIsCapturing(cuda(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

EventHandle CudaDevice::make_event() {
  const ContextGuard current(context_);
  cudaEvent_t event = nullptr;
  TNT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

EventHandle CudaDevice::make_timed_event() {
  const ContextGuard current(context_);
  cudaEvent_t event = nullptr;
  TNT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return event;
}

void CudaDevice::destroy_event(EventHandle event) noexcept {
  release_in_context([&] { (void)cudaEventDestroy(cuda_event(event)); });
}

void CudaDevice::record(EventHandle event, StreamHandle stream) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaEventRecord(cuda_event(event), cuda(stream)));
}

void CudaDevice::wait(StreamHandle stream, EventHandle event) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaStreamWaitEvent(cuda(stream), cuda_event(event), 0));
}

bool CudaDevice::completed(EventHandle event) {
  const ContextGuard current(context_);
  const RelaxedCaptureGuard relaxed;
  const cudaError_t answer = cudaEventQuery(cuda_event(event));
  if (not_ready(answer)) return false;
  if (answer != cudaSuccess) fail_cuda(answer, "cudaEventQuery(event)", __FILE__, __LINE__);
  return true;
}

double CudaDevice::seconds_between(EventHandle begin, EventHandle end) {
  const ContextGuard current(context_);
  const RelaxedCaptureGuard relaxed;
  float milliseconds = 0.0F;
  TNT_CUDA(cudaEventElapsedTime(&milliseconds, cuda_event(begin), cuda_event(end)));
  return static_cast<double>(milliseconds) * 1e-3;
}

void CudaDevice::copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda(stream)));
}

void CudaDevice::fill_zero(void* memory, std::size_t bytes, StreamHandle stream) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaMemsetAsync(memory, 0, bytes, cuda(stream)));
}

void CudaDevice::launch_host_func(void (*function)(void*), void* data, StreamHandle stream) {
  const ContextGuard current(context_);
  TNT_CUDA(cudaLaunchHostFunc(cuda(stream), function, data));
}

void CudaDevice::keep_in_graph(StreamHandle stream, std::shared_ptr<void> object) {
  const ContextGuard current(context_);
  const cudaGraph_t graph = captured_graph(cuda(stream));
  auto owned = std::make_unique<std::shared_ptr<void>>(std::move(object));
  const auto release = [](void* data) { delete static_cast<std::shared_ptr<void>*>(data); };
  cudaUserObject_t holder = nullptr;
  TNT_CUDA(cudaUserObjectCreate(&holder, owned.get(), release, 1, cudaUserObjectNoDestructorSync));
  (void)owned.release();
  TNT_CUDA(cudaGraphRetainUserObject(graph, holder, 1, cudaGraphUserObjectMove));
}

void CudaDevice::pack(const gpu::BucketLaunch& launch, StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::pack(launch, stream);
}

void CudaDevice::unpack(const gpu::BucketLaunch& launch, StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::unpack(launch, stream);
}

void CudaDevice::accumulate(const gpu::BucketLaunch& launch, StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::accumulate(launch, stream);
}

void CudaDevice::sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total, StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::sum_statistics(partials, n, total, stream);
}

void CudaDevice::clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor,
                             StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::clip_factor(statistics, n, limit, factor, stream);
}

void CudaDevice::reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype,
                        StreamHandle stream) {
  const ContextGuard current(context_);
  gpu::reduce(out, sources, n, count, dtype, stream);
}

namespace {

// The driver answers threads that have a context. Any context will do, so a thread without one takes one that exists.
void borrow_context(std::optional<PrimaryContext>& context, std::optional<ContextGuard>& current) {
  CUcontext own = nullptr;
  check_driver(driver().CtxGetCurrent(&own), "cuCtxGetCurrent");
  if (own != nullptr) return;
  int count = 0;
  TNT_CUDA(cudaGetDeviceCount(&count));
  for (int index = 0; index < count; ++index) {
    CUdevice device = 0;
    unsigned int flags = 0;
    int active = 0;
    check_driver(driver().DeviceGet(&device, index), "cuDeviceGet");
    check_driver(driver().DevicePrimaryCtxGetState(device, &flags, &active), "cuDevicePrimaryCtxGetState");
    if (active == 0) continue;
    current.emplace(context.emplace(index));
    return;
  }
  fail(TNT_INVALID_ARGUMENT, "the stream is of no device: this process has used none");
}

}  // namespace

int device_of_stream(cudaStream_t stream) {
  int device = -1;
  if (is_default_stream(stream)) {
    TNT_CUDA(cudaGetDevice(&device));
    return device;
  }
  std::optional<PrimaryContext> context;
  std::optional<ContextGuard> current;
  borrow_context(context, current);
  CUcontext of_stream = nullptr;
  check_driver(driver().StreamGetCtx(stream, &of_stream), "cuStreamGetCtx");
  const ContextGuard pushed(of_stream);
  check_driver(driver().CtxGetDevice(&device), "cuCtxGetDevice");
  return device;
}

}  // namespace tnt
