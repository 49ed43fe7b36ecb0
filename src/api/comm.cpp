// The C functions of communicators. Those of their errors are in comm_errors.cpp.
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "api/arguments.hpp"
#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"

namespace {

using namespace tnt;

void check_members(const Communicator& communicator, std::span<const int> members) {
  std::set<int> seen;
  for (const int member : members) {
    check_rank(communicator, member, "member");
    if (!seen.insert(member).second) fail(TNT_INVALID_ARGUMENT, "rank {} is in ranks twice", member);
  }
  if (seen.contains(communicator.rank())) return;
  fail(TNT_INVALID_ARGUMENT, "the calling rank {} is not in ranks: only members call this", communicator.rank());
}

void check_unused(tnt_comm_t comm) {
  if (comm == nullptr) return;
  const HandleUse on(comm);
  const std::scoped_lock lock(on->device_mutex);
  const std::size_t captured = on->device_collectives ? on->device_collectives->captured_operations() : 0;
  if (captured == 0) return;
  fail(TNT_INVALID_ARGUMENT,
       "CUDA graphs with {} operations of this communicator still exist: destroy them first (cudaGraphExecDestroy and "
       "cudaGraphDestroy)",
       captured);
}

CallContext context(const tnt_comm& on) { return Runtime::get().context(on); }

}  // namespace

std::shared_ptr<DeviceCollectives> tnt::connected_devices(tnt_comm& on, const std::function<int()>& index) {
  const std::scoped_lock lock(on.device_mutex);
  if (on.device_collectives) return on.device_collectives;
  Settings settings = Runtime::get().settings();
  settings.timeout = Runtime::get().timeout(on);
  const CallContext call{.timeout = settings.timeout, .detail = "connecting devices"};
  const int own = index();
  on.executor.run([&] {
    const auto connect = [&] { return connect_devices(own, *on.communicator, settings, call); };
    std::optional<DeviceGroup> upward;
    if (on.communicator->size() > 1) upward = connect();
    on.device_collectives = std::make_shared<DeviceCollectives>(connect(), std::move(upward));
  });
  return on.device_collectives;
}

extern "C" {

tnt_status_t tnt_comm_world(tnt_comm_t* comm) {
  return guarded_in_forks([&] { required(comm, "comm") = Runtime::world_handle(); });
}

tnt_status_t tnt_comm_split(tnt_comm_t comm, int color, int key, tnt_comm_t* part) {
  return guarded([&] {
    refuse_in_group("tnt_comm_split");
    required(part, "part") = nullptr;
    const HandleUse on(comm);
    std::unique_ptr<Communicator> group;
    on->executor.run([&] { group = on->communicator->split(color, key, context(*on)); });
    if (!group) return;
    *part = make_part(*on, std::move(group));
  });
}

tnt_status_t tnt_comm_create_group(tnt_comm_t comm, const int* ranks, size_t n_ranks, int tag, tnt_comm_t* group) {
  return guarded([&] {
    refuse_in_group("tnt_comm_create_group");
    required(group, "group") = nullptr;
    const HandleUse on(comm);
    Communicator& parent = *on->communicator;
    if (n_ranks > 0) required(ranks, "ranks");
    const std::span<const int> members(ranks, n_ranks);
    check_members(parent, members);
    *group = make_part(*on, parent.create_group(members, tag, context(*on)));
  });
}

tnt_status_t tnt_comm_rank(tnt_comm_t comm, int* rank) {
  return guarded_in_forks([&] { required(rank, "rank") = HandleUse(comm)->communicator->rank(); });
}

tnt_status_t tnt_comm_size(tnt_comm_t comm, int* size) {
  return guarded_in_forks([&] { required(size, "size") = HandleUse(comm)->communicator->size(); });
}

tnt_status_t tnt_comm_local_rank(tnt_comm_t comm, int* local_rank) {
  return guarded_in_forks([&] { required(local_rank, "local_rank") = HandleUse(comm)->communicator->local_rank(); });
}

tnt_status_t tnt_comm_local_size(tnt_comm_t comm, int* local_size) {
  return guarded_in_forks([&] { required(local_size, "local_size") = HandleUse(comm)->communicator->local_size(); });
}

tnt_status_t tnt_comm_transport(tnt_comm_t comm, const char** name) {
  return guarded_in_forks([&] { required(name, "name") = HandleUse(comm)->communicator->transport(); });
}

tnt_status_t tnt_comm_set_timeout(tnt_comm_t comm, double seconds) {
  return guarded([&] {
    if (!(seconds >= 0 && seconds <= 1e9))
      fail(TNT_INVALID_ARGUMENT, "seconds is {}: expected a number of seconds, or 0", seconds);
    HandleUse(comm)->timeout = seconds;
  });
}

tnt_status_t tnt_comm_connect_device(tnt_comm_t comm, int device) {
  return guarded([&] {
    refuse_in_group("tnt_comm_connect_device");
    const HandleUse on(comm);
    const int connected = connected_devices(*on, [&] { return device; })->device().index();
    if (connected == device) return;
    fail(TNT_INVALID_ARGUMENT, "device is {}, but this communicator works on device {} already", device, connected);
  });
}

tnt_status_t tnt_comm_destroy(tnt_comm_t comm) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] {
    refuse_in_group("tnt_comm_destroy");
    if (Runtime::is_world(comm)) fail(TNT_INVALID_ARGUMENT, "the world communicator ends with tnt_finalize");
    check_unused(comm);
    destroy_handle(comm);
  });
}

}  // extern "C"
