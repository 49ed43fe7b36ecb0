// Owning handles of streams, events and memory; ranges for profilers.
#pragma once

#include <cstddef>
#include <memory>

#include "common/non_copyable.hpp"
#include "device/device.hpp"

namespace tnt {

// A handle of the device, which gets it back by one of its functions.
template <void (Device::*give_back)(void* handle) noexcept>
struct GiveBack {
  Device* device;
  void operator()(void* handle) const noexcept { (device->*give_back)(handle); }
};
template <void (Device::*give_back)(void* handle) noexcept>
using OwnedHandle = std::unique_ptr<void, GiveBack<give_back>>;

class Stream {
 public:
  explicit Stream(Device& device, Priority priority = Priority::normal) : handle_(device.make_stream(priority), {&device}) {}
  [[nodiscard]] StreamHandle get() const noexcept { return handle_.get(); }

 private:
  OwnedHandle<&Device::destroy_stream> handle_;
};

enum class Timed { no, yes };

class Event {
 public:
  explicit Event(Device& device, Timed timed = Timed::no)
      : handle_(timed == Timed::yes ? device.make_timed_event() : device.make_event(), {&device}) {}
  [[nodiscard]] EventHandle get() const noexcept { return handle_.get(); }
  void record(StreamHandle stream) const { device().record(get(), stream); }
  void wait_on(StreamHandle stream) const { device().wait(stream, get()); }  // the stream waits, not the host
  [[nodiscard]] bool completed() const { return device().completed(get()); }
  [[nodiscard]] double seconds_until(const Event& end) const { return device().seconds_between(get(), end.get()); }

 private:
  [[nodiscard]] Device& device() const noexcept { return *handle_.get_deleter().device; }

  OwnedHandle<&Device::destroy_event> handle_;
};

// Released in the order of its stream, which must outlive it.
class DeviceBuffer {
 public:
  DeviceBuffer(Device& device, std::size_t bytes, StreamHandle stream)
      : memory_(bytes > 0 ? device.allocate(bytes, stream) : nullptr, {&device, stream}) {}
  [[nodiscard]] void* get() const noexcept { return memory_.get(); }

 private:
  struct Release {
    Device* device;
    StreamHandle stream;
    void operator()(void* memory) const noexcept { device->release(memory, stream); }
  };

  std::unique_ptr<void, Release> memory_;
};

class PinnedBuffer {
 public:
  PinnedBuffer(Device& device, std::size_t bytes) : memory_(bytes > 0 ? device.allocate_pinned(bytes) : nullptr, {&device}) {}
  [[nodiscard]] void* get() const noexcept { return memory_.get(); }

 private:
  OwnedHandle<&Device::release_pinned> memory_;
};

class DeviceRange : NonCopyable {
 public:
  DeviceRange(Device& device, const char* name) : device_(&device) { device.begin_range(name); }
  ~DeviceRange() { device_->end_range(); }

 private:
  Device* device_;
};

}  // namespace tnt
