#include "device/host_device.hpp"

#include <cstring>
#include <new>

#include "base/error.hpp"
#include "device/host_kernels.hpp"

namespace tnt {
namespace {

constexpr std::align_val_t alignment{256};  // as CUDA's allocations

void* take(std::size_t bytes) {
  void* memory = ::operator new(bytes, alignment, std::nothrow);
  if (memory == nullptr) fail(TNT_SYSTEM, "cannot allocate {} bytes", bytes);
  return memory;
}

struct Token {};  // what a stream or an event is here: something of its own to point to

}  // namespace

void* HostDevice::allocate(std::size_t bytes, StreamHandle) { return take(bytes); }
void HostDevice::release(void* memory, StreamHandle) noexcept { ::operator delete(memory, alignment); }
void* HostDevice::allocate_pinned(std::size_t bytes) { return take(bytes); }
void HostDevice::release_pinned(void* memory) noexcept { ::operator delete(memory, alignment); }

StreamHandle HostDevice::make_stream(Priority) { return new Token; }
void HostDevice::destroy_stream(StreamHandle stream) noexcept { delete static_cast<Token*>(stream); }
EventHandle HostDevice::make_event() { return new Token; }
void HostDevice::destroy_event(EventHandle event) noexcept { delete static_cast<Token*>(event); }

void HostDevice::copy(void* to, const void* from, std::size_t bytes, StreamHandle) {
  if (bytes > 0) std::memmove(to, from, bytes);
}
void HostDevice::fill_zero(void* memory, std::size_t bytes, StreamHandle) {
  if (bytes > 0) std::memset(memory, 0, bytes);
}

void HostDevice::pack(const gpu::BucketLaunch& launch, StreamHandle) { host::pack(launch); }
void HostDevice::unpack(const gpu::BucketLaunch& launch, bool accumulate, StreamHandle) { host::unpack(launch, accumulate); }
void HostDevice::sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total, StreamHandle) {
  host::sum_statistics(partials, n, total);
}
void HostDevice::reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order,
                        StreamHandle) {
  host::reduce(out, sources, n, count, dtype, order);
}
void HostDevice::axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype, StreamHandle) {
  host::axpy(y, x, a, count, dtype);
}

}  // namespace tnt
