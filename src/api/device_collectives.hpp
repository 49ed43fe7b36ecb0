// The device collectives of a communicator. All ranks create them in the first call with a stream.
#pragma once

#include <memory>
#include <mutex>

#include "base/settings.hpp"
#include "comm/communicator.hpp"
#include "comm/device_communicator.hpp"
#include "comm/executor.hpp"
#include "comm/stream_order.hpp"
#include "device/devices.hpp"

namespace tnt {

// The connected devices of the ranks. host: a communicator for this group alone.
struct DeviceGroup {
  std::shared_ptr<Device> device;
  std::unique_ptr<Communicator> host;
  std::unique_ptr<DeviceCommunicator> comm;
};

// Collective over host, which it duplicates. index: this rank's device. If a rank cannot take part, all ranks get the same
// error.
[[nodiscard]] DeviceGroup connect_devices(int index, Communicator& host, const Settings& settings, const CallContext& call,
                                          bool deterministic = false, int max_ctas = 0);

class DeviceCollectives : public std::enable_shared_from_this<DeviceCollectives> {
 public:
  explicit DeviceCollectives(DeviceGroup group);

  [[nodiscard]] Device& device() const noexcept { return *group_.device; }
  [[nodiscard]] DeviceCommunicator& comm() const noexcept { return *group_.comm; }

  // operation(DeviceCommunicator&) enqueues, in the order of the calls. Without `start`, the caller's stream waits for the
  // operation; with it, the returned handle does.
  template <typename Operation>
  [[nodiscard]] std::shared_ptr<Waitable> enqueue(StreamHandle caller, bool start, Operation&& operation) {
    const std::scoped_lock lock(mutex_);
    check_stream(caller);
    group_.comm->check_capture(caller);
    if (!start) {
      order_(caller, [&] { operation(*group_.comm); });
      return nullptr;
    }
    order_.after(caller);
    operation(*group_.comm);
    return make_work();
  }
  // Eight bytes of device memory for a barrier.
  [[nodiscard]] void* barrier_buffer() const noexcept { return barrier_buffer_.get(); }

 private:
  void check_stream(StreamHandle stream);
  [[nodiscard]] std::shared_ptr<Waitable> make_work();

  DeviceGroup group_;
  std::mutex mutex_;
  StreamOrder order_;
  DeviceBuffer barrier_buffer_;
};

// The device index of the stream. Throws TNT_UNSUPPORTED with the reason if this machine has no device.
[[nodiscard]] int device_index_of(StreamHandle stream);

}  // namespace tnt
