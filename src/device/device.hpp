// The device interface of the library: memory, streams, events, copies and the kernels on buckets. src/device/cuda implements
// it for libtarantella_cuda.so, and under HIP's names (src/device/hip) for libtarantella_hip.so; the tests have a device that
// checks CUDA's ordering rules.
//
// Enqueued work runs later, in the order of its stream. Only functions that say so wait for the device. Thread-safe. Errors are
// tnt::Error. While a stream is being captured into a graph, nobody may allocate or release on it, query whether it is idle, or
// query an event that was recorded on it then.
//
// src/device knows neither ranks nor buckets' contents; kernels are in kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/non_copyable.hpp"
#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt {

using StreamHandle = void*;  // cudaStream_t, never null: use cudaStreamLegacy for CUDA's default stream
using EventHandle = void*;   // cudaEvent_t

// CUDA's default streams belong to the current device of the thread that names them, cudaStreamPerThread also to the thread.
inline constexpr std::uintptr_t legacy_stream = 1;      // cudaStreamLegacy
inline constexpr std::uintptr_t per_thread_stream = 2;  // cudaStreamPerThread
[[nodiscard]] inline bool is_per_thread_stream(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == per_thread_stream;
}
[[nodiscard]] inline bool is_default_stream(const void* stream) {
  return is_per_thread_stream(stream) || reinterpret_cast<std::uintptr_t>(stream) == legacy_stream;
}

enum class Priority { normal, high };

enum class Vendor { nvidia, amd };

// The memory that a pointer refers to.
struct PointerAttributes {
  enum class Kind { host, pinned, device, managed };
  Kind kind = Kind::host;
  int device = -1;  // for device and managed memory
};

class Device : NonCopyable {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual int index() const noexcept = 0;
  [[nodiscard]] virtual Vendor vendor() const noexcept { return Vendor::nvidia; }
  // The PCI address of the device, "0000:0a:00.0", independent of CUDA_VISIBLE_DEVICES. Two ranks of a node with the same
  // address share a GPU.
  [[nodiscard]] virtual std::string bus_id() const { return std::to_string(index()); }
  // Calls body with this device as the calling thread's current device, for libraries that use it, such as NCCL's
  // initialisation.
  virtual void with_current_device(const std::function<void()>& body) { body(); }

  // Stream-ordered memory from a pool: later work on the stream may use it, and release takes effect after earlier work.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, StreamHandle stream) = 0;
  virtual void release(void* memory, StreamHandle stream) noexcept = 0;
  // Host memory that the device can access. Slow; releasing it may wait for the device.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  [[nodiscard]] virtual PointerAttributes pointer_attributes(const void* memory) = 0;

  [[nodiscard]] virtual StreamHandle make_stream(Priority priority) = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;  // work on it still runs to its end
  [[nodiscard]] virtual bool idle(StreamHandle stream) = 0;       // all work on it has ended
  virtual void synchronize(StreamHandle stream) = 0;              // waits until it is idle
  [[nodiscard]] virtual int device_of(StreamHandle stream) = 0;   // index; of a default stream, for the calling thread
  [[nodiscard]] virtual bool capturing(StreamHandle stream) = 0;  // into a graph

  [[nodiscard]] virtual EventHandle make_event() = 0;        // without a time
  [[nodiscard]] virtual EventHandle make_timed_event() = 0;  // costs more to record
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;  // later work on the stream waits for the last record
  [[nodiscard]] virtual bool completed(EventHandle event) = 0;    // true if it was never recorded
  // From the last record of one timed event to that of another, both completed and outside of captures.
  [[nodiscard]] virtual double seconds_between(EventHandle begin, EventHandle end) = 0;

  // In any direction; host memory should be pinned. Zero bytes: does nothing, with any addresses.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;
  virtual void fill_zero(void* memory, std::size_t bytes, StreamHandle stream) = 0;
  // Calls function(data) on a thread of the device, in stream order. The function must not call the device.
  virtual void launch_host_func(void (*function)(void*), void* data, StreamHandle stream) = 0;

  // Keeps the object until the graph that the stream is captured into, and all instances of it, have been destroyed. A thread
  // of the device may release it, a moment later.
  virtual void keep_in_graph(StreamHandle stream, std::shared_ptr<void> object) = 0;

  // See kernels/cuda/bucket_kernels.hpp.
  virtual void pack(const gpu::BucketLaunch& launch, StreamHandle stream) = 0;
  virtual void unpack(const gpu::BucketLaunch& launch, StreamHandle stream) = 0;
  virtual void accumulate(const gpu::BucketLaunch& launch, StreamHandle stream) = 0;
  virtual void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total,
                              StreamHandle stream) = 0;
  virtual void clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor,
                           StreamHandle stream) = 0;
  virtual void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype,
                      StreamHandle stream) = 0;

  // A range of the calling thread for profilers (NVTX), which nest. Costs a few nanoseconds without a profiler.
  virtual void begin_range(const char* /*name*/) noexcept {}
  virtual void end_range() noexcept {}
};

}  // namespace tnt
