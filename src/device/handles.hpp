// Owning handles of streams, events and memory; ranges for profilers.
#pragma once

#include <cstddef>
#include <utility>

#include "device/device.hpp"

namespace tnt {

class Stream {
 public:
  explicit Stream(Device& device, Priority priority = Priority::normal)
      : device_(&device), handle_(device.make_stream(priority)) {}
  Stream(Stream&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (handle_ != nullptr) device_->destroy_stream(handle_);
  }
  [[nodiscard]] StreamHandle get() const noexcept { return handle_; }

 private:
  Device* device_;
  StreamHandle handle_;
};

class Event {
 public:
  explicit Event(Device& device) : device_(&device), handle_(device.make_event()) {}
  Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (handle_ != nullptr) device_->destroy_event(handle_);
  }
  [[nodiscard]] EventHandle get() const noexcept { return handle_; }
  void record(StreamHandle stream) const { device_->record(handle_, stream); }
  void wait_on(StreamHandle stream) const { device_->wait(stream, handle_); }  // the stream waits, not the host
  [[nodiscard]] bool completed() const { return device_->completed(handle_); }

 private:
  Device* device_;
  EventHandle handle_;
};

// Released in the order of its stream, which must outlive it.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::size_t bytes, StreamHandle stream)
      : device_(&device), stream_(stream), memory_(bytes > 0 ? device.allocate(bytes, stream) : nullptr) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_), stream_(other.stream_), memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->release(memory_, stream_);
  }
  [[nodiscard]] void* get() const noexcept { return memory_; }

 private:
  Device* device_;
  StreamHandle stream_;
  void* memory_;
};

class PinnedBuffer {
 public:
  PinnedBuffer(Device& device, std::size_t bytes)
      : device_(&device), memory_(bytes > 0 ? device.allocate_pinned(bytes) : nullptr) {}
  PinnedBuffer(PinnedBuffer&& other) noexcept : device_(other.device_), memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() {
    if (memory_ != nullptr) device_->release_pinned(memory_);
  }
  [[nodiscard]] void* get() const noexcept { return memory_; }

 private:
  Device* device_;
  void* memory_;
};

class DeviceRange {
 public:
  DeviceRange(Device& device, const char* name) : device_(&device) { device.begin_range(name); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;
  ~DeviceRange() { device_->end_range(); }

 private:
  Device* device_;
};

}  // namespace tnt
