// A device plug-in of TensorFlow for tests: two devices of the type TNTFAKE, or as
// many as FAKE_DEVICES says, whose memory is memory.hpp's and whose streams are
// threads. Each copy between host and device is counted and takes FAKE_DEVICE_COPY_US microseconds.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "memory.hpp"
#include "order.hpp"
#include "stream.hpp"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

namespace {

using fake_device::bytes_of;

std::atomic<std::int64_t> copies_to_host{0}, copies_to_device{0};

void take_time() {
  static const char* const text = std::getenv("FAKE_DEVICE_COPY_US");
  if (text != nullptr) usleep(static_cast<useconds_t>(std::atoi(text)));
}

void copy_to_host(void* target, const void* source, std::uint64_t bytes) {
  fake_device::copy_to_host_begins(bytes);
  take_time();
  std::memcpy(target, bytes_of(source), bytes);
  ++copies_to_host;
}

void copy_to_device(void* target, const void* source, std::uint64_t bytes) {
  take_time();
  std::memcpy(bytes_of(target), source, bytes);
  ++copies_to_device;
}

void copy_on_device(void* target, const void* source, std::uint64_t bytes) {
  std::memcpy(bytes_of(target), bytes_of(source), bytes);
}

void fill_executor(SP_StreamExecutor& executor) {
  executor.allocate = [](const SP_Device*, std::uint64_t bytes, std::int64_t, SP_DeviceMemoryBase* memory) {
    memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
    memory->opaque = fake_device::allocate(bytes);
    memory->size = memory->opaque == nullptr ? 0 : bytes;
  };
  executor.deallocate = [](const SP_Device*, SP_DeviceMemoryBase* memory) { fake_device::deallocate(memory->opaque); };
  executor.host_memory_allocate = [](const SP_Device*, std::uint64_t bytes) {
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  };
  executor.host_memory_deallocate = [](const SP_Device*, void* memory) { std::free(memory); };
  executor.get_allocator_stats = [](const SP_Device*, SP_AllocatorStats*) -> TF_Bool { return 0; };
  executor.device_memory_usage = [](const SP_Device*, std::int64_t* free, std::int64_t* total) -> TF_Bool {
    *free = *total = std::int64_t{1} << 28;
    return 1;
  };

  executor.create_stream = [](const SP_Device*, SP_Stream* stream, TF_Status*) { *stream = new SP_Stream_st; };
  executor.destroy_stream = [](const SP_Device*, SP_Stream stream) { delete stream; };
  executor.create_stream_dependency = [](const SP_Device*, SP_Stream dependent, SP_Stream other, TF_Status*) {
    SP_Event_st event;
    other->record(event);
    dependent->wait_for(event);
  };
  executor.get_stream_status = [](const SP_Device*, SP_Stream, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); };
  executor.block_host_until_done = [](const SP_Device*, SP_Stream stream, TF_Status*) { stream->finish(); };
  executor.synchronize_all_activity = [](const SP_Device*, TF_Status*) {};
  executor.host_callback = [](const SP_Device*, SP_Stream stream, SE_StatusCallbackFn call, void* argument) -> TF_Bool {
    stream->enqueue([call, argument] {
      TF_Status* const status = TF_NewStatus();
      call(argument, status);
      TF_DeleteStatus(status);
    });
    return 1;
  };

  executor.create_event = [](const SP_Device*, SP_Event* event, TF_Status*) { *event = new SP_Event_st; };
  executor.destroy_event = [](const SP_Device*, SP_Event event) { delete event; };
  executor.get_event_status = [](const SP_Device*, SP_Event event) {
    const std::lock_guard lock{event->place->mutex};
    return event->place->reached ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
  };
  executor.record_event = [](const SP_Device*, SP_Stream stream, SP_Event event, TF_Status*) { stream->record(*event); };
  executor.wait_for_event = [](const SP_Device*, SP_Stream stream, SP_Event event, TF_Status*) { stream->wait_for(*event); };
  executor.block_host_for_event = [](const SP_Device*, SP_Event event, TF_Status*) { fake_device::wait_for(*event->place); };

  executor.create_timer = [](const SP_Device*, SP_Timer*, TF_Status*) {};
  executor.destroy_timer = [](const SP_Device*, SP_Timer) {};
  executor.start_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {};
  executor.stop_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {};

  executor.memcpy_dtoh = [](const SP_Device*, SP_Stream stream, void* target, const SP_DeviceMemoryBase* source,
                            std::uint64_t bytes, TF_Status*) {
    stream->enqueue([target, from = source->opaque, bytes] { copy_to_host(target, from, bytes); });
  };
  executor.memcpy_htod = [](const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* target, const void* source,
                            std::uint64_t bytes, TF_Status*) {
    stream->enqueue([to = target->opaque, source, bytes] { copy_to_device(to, source, bytes); });
  };
  executor.memcpy_dtod = [](const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* target, const SP_DeviceMemoryBase* source,
                            std::uint64_t bytes, TF_Status*) {
    stream->enqueue([to = target->opaque, from = source->opaque, bytes] { copy_on_device(to, from, bytes); });
  };
  executor.sync_memcpy_dtoh = [](const SP_Device*, void* target, const SP_DeviceMemoryBase* source, std::uint64_t bytes,
                                 TF_Status*) { copy_to_host(target, source->opaque, bytes); };
  executor.sync_memcpy_htod = [](const SP_Device*, SP_DeviceMemoryBase* target, const void* source, std::uint64_t bytes,
                                 TF_Status*) { copy_to_device(target->opaque, source, bytes); };
  executor.sync_memcpy_dtod = [](const SP_Device*, SP_DeviceMemoryBase* target, const SP_DeviceMemoryBase* source,
                                 std::uint64_t bytes, TF_Status*) { copy_on_device(target->opaque, source->opaque, bytes); };
  executor.mem_zero = [](const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* target, std::uint64_t bytes, TF_Status*) {
    stream->enqueue([to = target->opaque, bytes] { std::memset(bytes_of(to), 0, bytes); });
  };
  executor.memset = [](const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* target, std::uint8_t value, std::uint64_t bytes,
                       TF_Status*) {
    stream->enqueue([to = target->opaque, value, bytes] { std::memset(bytes_of(to), value, bytes); });
  };
  executor.memset32 = [](const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* target, std::uint32_t value,
                         std::uint64_t bytes, TF_Status*) {
    stream->enqueue([to = target->opaque, value, bytes] {
      for (std::uint64_t at = 0; at + sizeof value <= bytes; at += sizeof value)
        std::memcpy(bytes_of(to) + at, &value, sizeof value);
    });
  };
}

void fill_platform(SP_PlatformFns& platform) {
  platform.get_device_count = [](const SP_Platform*, int* count, TF_Status*) {
    const char* const text = std::getenv("FAKE_DEVICES");
    *count = text != nullptr ? std::atoi(text) : 2;
  };
  platform.create_device = [](const SP_Platform*, SE_CreateDeviceParams* parameters, TF_Status*) {
    parameters->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    parameters->device->ordinal = parameters->ordinal;
    parameters->device->hardware_name = "fake";
    parameters->device->device_vendor = "tests";
    parameters->device->pci_bus_id = "0000:00:00.0";
  };
  platform.destroy_device = [](const SP_Platform*, SP_Device*) {};
  platform.create_device_fns = [](const SP_Platform*, SE_CreateDeviceFnsParams* parameters, TF_Status*) {
    *parameters->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE, nullptr, nullptr, nullptr, nullptr};
  };
  platform.destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  platform.create_stream_executor = [](const SP_Platform*, SE_CreateStreamExecutorParams* parameters, TF_Status*) {
    parameters->stream_executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
    fill_executor(*parameters->stream_executor);
  };
  platform.destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  platform.create_timer_fns = [](const SP_Platform*, SP_TimerFns* functions, TF_Status*) {
    functions->nanoseconds = [](SP_Timer) { return std::uint64_t{0}; };
  };
  platform.destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
}

}  // namespace

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* const parameters, TF_Status* const status) {
  parameters->major_version = SE_MAJOR;
  parameters->minor_version = SE_MINOR;
  parameters->patch_version = SE_PATCH;
  parameters->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  parameters->platform->name = "TNTFAKE";
  parameters->platform->type = "TNTFAKE";
  parameters->platform->use_bfc_allocator = 1;
  parameters->platform->force_memory_growth = 1;
  parameters->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  fill_platform(*parameters->platform_fns);
  parameters->destroy_platform = [](SP_Platform*) {};
  parameters->destroy_platform_fns = [](SP_PlatformFns*) {};
  TF_SetStatus(status, TF_OK, "");
}

// The copies between host and device in this process so far.
extern "C" std::int64_t fake_device_copies(int to_host) { return to_host != 0 ? copies_to_host : copies_to_device; }
