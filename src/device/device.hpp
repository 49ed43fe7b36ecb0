// A device as the library needs it: memory, streams, events, copies and the kernels on buckets, behind one interface. CUDA's
// is in libtarantella_cuda.so (src/device/cuda), the tests have one that keeps CUDA's ordering rules. What is enqueued on a
// stream happens later, in the order of the stream; no function but those that say so waits for the device. Thread-safe.
// Errors: tnt::Error with what was tried. While a stream is captured into a graph nobody may allocate or release on it, ask
// whether it is idle, or poll an event that was recorded on it then.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "kernels/cuda/bucket_kernels.hpp"

namespace tnt {

using StreamHandle = void*;  // cudaStream_t; never null: CUDA's default stream has handles of its own (cudaStreamLegacy)
using EventHandle = void*;   // cudaEvent_t, without timing

enum class Priority { normal, high };

// Where a pointer points to.
struct PointerAttributes {
  enum class Kind { host, pinned, device, managed };
  Kind kind = Kind::host;
  int device = -1;  // of device and managed memory
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual int index() const noexcept = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // "NVIDIA H200"
  // Where it is in its node, whatever CUDA_VISIBLE_DEVICES says: "0000:0a:00.0". Equal on two ranks of a node: one GPU.
  [[nodiscard]] virtual std::string bus_id() const { return std::to_string(index()); }
  // For libraries that take the calling thread's current device, as NCCL's initialisation does: it is this one in body.
  virtual void with_current_device(const std::function<void()>& body) { body(); }

  // Memory, from a pool, in the order of the stream: it may be used by what comes after on the stream, and is given back when
  // what came before has ended.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, StreamHandle stream) = 0;
  virtual void release(void* memory, StreamHandle stream) noexcept = 0;
  // Host memory that the device reaches; waits for nothing. Slow, and giving it back may wait for the device.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  [[nodiscard]] virtual PointerAttributes pointer_attributes(const void* memory) = 0;

  [[nodiscard]] virtual StreamHandle make_stream(Priority priority) = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;  // what is on it still ends
  [[nodiscard]] virtual bool idle(StreamHandle stream) = 0;       // everything on it has ended
  virtual void synchronize(StreamHandle stream) = 0;              // waits for that
  [[nodiscard]] virtual int device_of(StreamHandle stream) = 0;   // index of the device that it belongs to
  [[nodiscard]] virtual bool capturing(StreamHandle stream) = 0;  // into a graph

  [[nodiscard]] virtual EventHandle make_event() = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;  // what comes after on the stream waits for the last record
  [[nodiscard]] virtual bool completed(EventHandle event) = 0;    // also if it was never recorded

  // Any direction; host memory on either side should be pinned. No bytes: nothing, whatever the addresses.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;
  virtual void fill_zero(void* memory, std::size_t bytes, StreamHandle stream) = 0;
  // Calls function(data) in a thread of the device's when the stream comes to it; it must not call the device.
  virtual void launch_host_func(void (*function)(void*), void* data, StreamHandle stream) = 0;

  // kernels/cuda/bucket_kernels.hpp
  virtual void pack(const gpu::BucketLaunch& launch, StreamHandle stream) = 0;
  virtual void unpack(const gpu::BucketLaunch& launch, bool accumulate, StreamHandle stream) = 0;
  virtual void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total,
                              StreamHandle stream) = 0;
  virtual void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order,
                      StreamHandle stream) = 0;
  virtual void axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype, StreamHandle stream) = 0;
};

}  // namespace tnt
