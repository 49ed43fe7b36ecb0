#include "api/device_collectives.hpp"

#include <cmath>
#include <thread>

#include "base/clock.hpp"
#include "comm/hierarchical/hierarchical_device_communicator.hpp"
#include "comm/nccl/nccl_init.hpp"
#include "comm/staged/staged_communicator.hpp"
#include "launch/node.hpp"

namespace tnt {
namespace {

// The work that was enqueued on the communicator's stream so far.
class StreamWork final : public Waitable {
 public:
  explicit StreamWork(std::shared_ptr<DeviceCollectives> collectives)
      : collectives_(std::move(collectives)), event_(collectives_->device()) {
    event_.record(collectives_->comm().stream());
  }
  [[nodiscard]] bool wait(double seconds) override {
    const Deadline deadline(std::isfinite(seconds) && seconds >= 0 ? seconds : 1e9);
    while (!event_.completed()) {
      collectives_->comm().throw_if_aborted();
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

 private:
  std::shared_ptr<DeviceCollectives> collectives_;
  Event event_;
};

}  // namespace

DeviceGroup connect_devices(int index, Communicator& host, const Settings& settings, const CallContext& call,
                            bool deterministic, int max_ctas) {
  DeviceGroup group{.device = nullptr, .host = host.split(0, 0, call), .comm = nullptr};
  std::optional<Error> no_device;
  try {
    group.device = open_device(index);
  } catch (const Error& error) {
    no_device = error;
  }
  agree_on_error(*group.host, no_device, settings.timeout);
  const NcclOptions options{
      .timeout = settings.timeout, .library = settings.nccl_library, .deterministic = deterministic, .max_ctas = max_ctas};
  switch (settings.device_transport) {
    case DeviceTransport::nccl: group.comm = make_nccl_communicator(*group.device, *group.host, options); break;
    case DeviceTransport::staged:
      group.comm = std::make_unique<StagedCommunicator>(*group.device, group.host->split(0, 0, call), settings.timeout);
      break;
    case DeviceTransport::hierarchical:
      group.comm = make_hierarchical_device_communicator(*group.device, *group.host, options, node_identity(settings));
      break;
  }
  return group;
}

DeviceCollectives::DeviceCollectives(DeviceGroup group)
    : group_(std::move(group)),
      order_(*group_.device, *group_.comm),
      barrier_buffer_(*group_.device, sizeof(std::int64_t), group_.comm->stream()) {}

void DeviceCollectives::check_stream(StreamHandle stream) {
  const int index = group_.device->device_of(stream);
  if (index == group_.device->index()) return;
  fail(TNT_INVALID_ARGUMENT, "the stream is of device {}, but this communicator works on device {} since its first stream",
       index, group_.device->index());
}

std::shared_ptr<Waitable> DeviceCollectives::make_work() { return std::make_shared<StreamWork>(shared_from_this()); }

int device_index_of(StreamHandle stream) {
  if (device_count() == 0) fail(TNT_UNSUPPORTED, "stream is not NULL, but there is no CUDA device: {}", why_no_device());
  return open_device(0)->device_of(stream);
}

}  // namespace tnt
