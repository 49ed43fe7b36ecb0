#include "api/device_collectives.hpp"

#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "bootstrap/node.hpp"
#include "comm/hierarchical/device_communicator.hpp"
#include "comm/nccl/init.hpp"
#include "comm/staged/staged_communicator.hpp"

namespace tnt {
namespace {

// The work that was enqueued on the communicator's stream so far.
class StreamWork final : public Waitable {
 public:
  StreamWork(std::shared_ptr<DeviceCollectives> collectives, DeviceCommunicator& comm)
      : collectives_(std::move(collectives)), comm_(comm), event_(collectives_->device()) {
    event_.record(comm_.stream());
  }
  [[nodiscard]] bool wait(double seconds) override {
    const Deadline deadline(std::isfinite(seconds) && seconds >= 0 ? seconds : 1e9);
    while (!event_.completed()) {
      comm_.throw_if_aborted();
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    comm_.check();
    return true;
  }

 private:
  std::shared_ptr<DeviceCollectives> collectives_;
  DeviceCommunicator& comm_;
  Event event_;
};

// The transport that the user asks for, or the host's if ranks share a GPU.
DeviceTransport transport_between(Device& device, Communicator& host, DeviceTransport asked, const NcclOptions& options) {
  if (asked == DeviceTransport::staged) return asked;
  const auto shared = find_shared_gpu(device, host, options);
  if (!shared) return asked;
  static std::once_flag said;
  std::call_once(said, [&] {
    log(LogLevel::warning,
        "{}, and NCCL connects one rank on each: data between devices goes through host memory (staged), which is slow. Give "
        "each rank a GPU of its own, or with NCCL 2.30.3 or newer set NCCL_MULTI_RANK_GPU_ENABLE=1",
        *shared);
  });
  return DeviceTransport::staged;
}

}  // namespace

DeviceGroup connect_devices(int index, Communicator& host, const Settings& settings, const CallContext& call,
                            bool deterministic, int max_ctas) {
  DeviceGroup group{.device = nullptr, .host = host.duplicate(call), .comm = nullptr};
  std::optional<Error> no_device;
  try {
    group.device = open_device(index);
  } catch (const Error& error) {
    no_device = error;
  }
  agree_on_error(*group.host, no_device, settings.timeout);
  const NcclOptions options{.timeout = settings.timeout,
                            .library = settings.nccl_library,
                            .vendor = group.device->vendor(),
                            .deterministic = deterministic,
                            .max_ctas = max_ctas};
  switch (transport_between(*group.device, *group.host, settings.device_transport, options)) {
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

DeviceCollectives::DeviceCollectives(DeviceGroup collectives, std::optional<DeviceGroup> upward)
    : collectives_(std::move(collectives)), barrier_buffer_(device(), sizeof(std::int64_t), comm().stream()) {
  if (upward) upward_.emplace(std::move(*upward));
}

// A barrier is an all_reduce of one element.
void DeviceCollectives::run(DeviceCommunicator& comm, const Collective& call) {
  if (call.kind != Call::barrier) return comm.run(call, {});
  void* const buffer = barrier_buffer_.get();
  comm.run({{.kind = Call::all_reduce, .dtype = TNT_INT64, .op = TNT_MAX, .count = 1}, buffer, buffer}, "barrier");
}

void DeviceCollectives::check_stream(StreamHandle stream) const {
  const int index = device().device_of(stream);
  if (index == device().index()) return;
  fail(TNT_INVALID_ARGUMENT, "the stream is of device {}, but this communicator works on device {} already", index,
       device().index());
}

std::shared_ptr<Waitable> DeviceCollectives::make_work(DeviceCommunicator& comm) {
  return std::make_shared<StreamWork>(shared_from_this(), comm);
}

void DeviceCollectives::enqueue_together(std::span<const LaneOperations> all) {
  std::map<Ordered*, std::unique_lock<std::mutex>> locks;  // taken in one order by all threads
  for (const LaneOperations& each : all) locks.try_emplace(&each.on->of(each.lane));
  for (auto& [lane, lock] : locks) lock = std::unique_lock(lane->mutex);
  for (const LaneOperations& each : all) {
    for (const StreamHandle stream : each.streams) {
      each.on->check_stream(stream);
      each.on->of(each.lane).group.comm->check_capture(stream);
    }
  }
  for (const LaneOperations& each : all) {
    for (const StreamHandle stream : each.streams) each.on->of(each.lane).order.after(stream);
  }
  std::optional<Error> failure;
  std::size_t enqueued = 0;
  try {
    for (; enqueued < all.size(); ++enqueued) all[enqueued].enqueue(*all[enqueued].on->of(all[enqueued].lane).group.comm);
  } catch (const Error& error) {
    failure = error;
  }
  for (const LaneOperations& each : all.first(enqueued)) each.on->of(each.lane).order.before(each.streams);
  if (failure) throw Error(*failure);
}

void DeviceCollectives::check() {
  comm().check();
  if (upward_) upward_->group.comm->check();
}

std::size_t DeviceCollectives::captured_operations() {
  return comm().captured_operations() + (upward_ ? upward_->group.comm->captured_operations() : 0);
}

}  // namespace tnt
