// The CUDA device. It uses a statically linked CUDA runtime, so that no second libcudart enters TensorFlow's process. Streams,
// events and pointers belong to the driver, and the primary context is shared, so those of other runtimes in the process work
// here.
//
// This folder and kernels/cuda make libtarantella_cuda.so, and no other code of the library includes CUDA's headers. With HIP
// under CUDA's names (src/device/hip) they make libtarantella_hip.so; vendor.cpp and driver.cpp are the files that it replaces.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "device/cuda/guards.hpp"
#include "device/device.hpp"

namespace tnt {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  [[nodiscard]] int index() const noexcept override { return index_; }
  [[nodiscard]] Vendor vendor() const noexcept override;
  [[nodiscard]] std::string bus_id() const override;
  void with_current_device(const std::function<void()>& body) override;

  [[nodiscard]] void* allocate(std::size_t bytes, StreamHandle stream) override;
  void release(void* memory, StreamHandle stream) noexcept override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  [[nodiscard]] PointerAttributes pointer_attributes(const void* memory) override;

  [[nodiscard]] StreamHandle make_stream(Priority priority) override;
  void destroy_stream(StreamHandle stream) noexcept override;
  [[nodiscard]] bool idle(StreamHandle stream) override;
  void synchronize(StreamHandle stream) override;
  [[nodiscard]] int device_of(StreamHandle stream) override;
  [[nodiscard]] bool capturing(StreamHandle stream) override;

  [[nodiscard]] EventHandle make_event() override;
  [[nodiscard]] EventHandle make_timed_event() override;
  void destroy_event(EventHandle event) noexcept override;
  void record(EventHandle event, StreamHandle stream) override;
  void wait(StreamHandle stream, EventHandle event) override;
  [[nodiscard]] bool completed(EventHandle event) override;
  [[nodiscard]] double seconds_between(EventHandle begin, EventHandle end) override;

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override;
  void fill_zero(void* memory, std::size_t bytes, StreamHandle stream) override;
  void launch_host_func(void (*function)(void*), void* data, StreamHandle stream) override;
  void begin_range(const char* name) noexcept override;
  void end_range() noexcept override;
  void keep_in_graph(StreamHandle stream, std::shared_ptr<void> object) override;

  void pack(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void unpack(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void accumulate(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total, StreamHandle stream) override;
  void clip_factor(const gpu::Statistics* statistics, std::uint32_t n, double limit, double* factor,
                   StreamHandle stream) override;
  void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, StreamHandle stream) override;

 private:
  [[noreturn]] void fail_out_of_memory(std::size_t bytes);
  template <typename Release>
  void release_in_context(Release&& release) noexcept;

  int index_;
  PrimaryContext context_;
  cudaMemPool_t pool_ = nullptr;
  int normal_priority_ = 0;
  int high_priority_ = 0;
};

// The number of devices that this process can use; 0 with the reason in why_none.
[[nodiscard]] int count_cuda_devices(std::string& why_none);

// The device of a stream. For cudaStreamLegacy and cudaStreamPerThread: the calling thread's current device. Creates no
// context.
[[nodiscard]] int device_of_stream(cudaStream_t stream);

}  // namespace tnt
