// The device that a machine without one has: its memory is host memory and a stream is the thread that calls. What is enqueued
// has happened when the call returns, so every order that a program asks of streams and events is kept, and nothing overlaps.
#pragma once

#include <memory>

#include "device/device.hpp"

namespace tnt {

class HostDevice final : public Device {
 public:
  [[nodiscard]] int index() const noexcept override { return 0; }
  [[nodiscard]] std::string name() const override { return "CPU"; }

  [[nodiscard]] void* allocate(std::size_t bytes, StreamHandle stream) override;
  void release(void* memory, StreamHandle stream) noexcept override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  // All memory is the device's own here.
  [[nodiscard]] PointerAttributes pointer_attributes(const void*) override { return {PointerAttributes::Kind::device, 0}; }

  [[nodiscard]] StreamHandle make_stream(Priority priority) override;
  void destroy_stream(StreamHandle stream) noexcept override;
  [[nodiscard]] bool idle(StreamHandle) override { return true; }
  void synchronize(StreamHandle) override {}
  [[nodiscard]] int device_of(StreamHandle) override { return 0; }
  [[nodiscard]] bool capturing(StreamHandle) override { return false; }

  [[nodiscard]] EventHandle make_event() override;
  void destroy_event(EventHandle event) noexcept override;
  void record(EventHandle, StreamHandle) override {}
  void wait(StreamHandle, EventHandle) override {}
  [[nodiscard]] bool completed(EventHandle) override { return true; }

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override;
  void fill_zero(void* memory, std::size_t bytes, StreamHandle stream) override;
  void launch_host_func(void (*function)(void*), void* data, StreamHandle) override { function(data); }

  void pack(const gpu::BucketLaunch& launch, StreamHandle stream) override;
  void unpack(const gpu::BucketLaunch& launch, bool accumulate, StreamHandle stream) override;
  void sum_statistics(const gpu::Statistics* partials, std::uint32_t n, gpu::Statistics* total, StreamHandle stream) override;
  void reduce(void* out, const void* const* sources, int n, std::size_t count, tnt_dtype_t dtype, gpu::Order order,
              StreamHandle stream) override;
  void axpy(void* y, const void* x, double a, std::size_t count, tnt_dtype_t dtype, StreamHandle stream) override;
};

}  // namespace tnt
