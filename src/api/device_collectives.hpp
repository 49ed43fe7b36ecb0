// The device collectives of a communicator. All ranks create them in the first call with a stream.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

// A device runs the operations of one communicator one after another. If messages in both directions took one communicator, two
// ranks that send to each other would wait for each other, so those to a higher rank have one of their own.
enum class Lane { collectives, upward };
[[nodiscard]] inline Lane lane_of(int from, int to) noexcept { return from < to ? Lane::upward : Lane::collectives; }
[[nodiscard]] inline Lane lane_of(const Call& call, int self) noexcept {  // on rank `self`
  if (!is_message(call.kind)) return Lane::collectives;
  return call.kind == Call::send ? lane_of(self, call.root) : lane_of(call.root, self);
}

class DeviceCollectives;

// Operations of one lane, in their order.
struct LaneOperations {
  DeviceCollectives* on;
  Lane lane;
  std::vector<StreamHandle> streams;  // of the callers
  std::function<void(DeviceCommunicator&)> enqueue;
};

class DeviceCollectives : public std::enable_shared_from_this<DeviceCollectives> {
 public:
  // upward: another group of the same ranks and devices; none for one rank.
  DeviceCollectives(DeviceGroup collectives, std::optional<DeviceGroup> upward);

  [[nodiscard]] Device& device() const noexcept { return *collectives_.group.device; }
  [[nodiscard]] DeviceCommunicator& comm() const noexcept { return *collectives_.group.comm; }

  // operation(DeviceCommunicator&) enqueues, in the order of the lane's calls. Without `start`, the caller's stream waits for
  // the operation; with it, the returned handle does.
  template <typename Operation>
  [[nodiscard]] std::shared_ptr<Waitable> enqueue(Lane lane, StreamHandle caller, bool start, Operation&& operation) {
    Ordered& on = of(lane);
    const std::scoped_lock lock(on.mutex);
    check_stream(caller);
    on.group.comm->check_capture(caller);
    if (!start) {
      on.order(caller, [&] { operation(*on.group.comm); });
      return nullptr;
    }
    on.order.after(caller);
    operation(*on.group.comm);
    return make_work(*on.group.comm);
  }
  // All of them begin after the earlier work of their streams, which then wait for them; they do not wait for each other. If
  // one throws, those after it are not enqueued.
  static void enqueue_together(std::span<const LaneOperations> all);
  // The call on one of the communicators, in an operation of theirs.
  void run(DeviceCommunicator& comm, const Collective& call);

  void check();                                     // as DeviceCommunicator::check
  [[nodiscard]] std::size_t captured_operations();  // likewise

 private:
  struct Ordered {
    explicit Ordered(DeviceGroup with) : group(std::move(with)), order(*group.device, *group.comm) {}
    DeviceGroup group;
    std::mutex mutex;
    StreamOrder order;
  };
  [[nodiscard]] Ordered& of(Lane lane) noexcept { return lane == Lane::upward ? *upward_ : collectives_; }
  void check_stream(StreamHandle stream) const;
  [[nodiscard]] std::shared_ptr<Waitable> make_work(DeviceCommunicator& comm);

  Ordered collectives_;
  std::optional<Ordered> upward_;
  DeviceBuffer barrier_buffer_;  // eight bytes
};

}  // namespace tnt
