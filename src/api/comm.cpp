// The C functions of communicators and collectives.
#include <cmath>
#include <set>
#include <span>

#include "api/boundary.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "comm/dispatch_collective.hpp"

struct tnt_work {
  std::shared_ptr<tnt::Waitable> state;
};

namespace {

using namespace tnt;

// For a single buffer, pass it twice.
void check_buffers(const void* in, const void* out, std::size_t count, tnt_dtype_t dtype) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "dtype {} is not a tnt_dtype_t", static_cast<int>(dtype));
  if (count > SIZE_MAX / 16) fail(TNT_INVALID_ARGUMENT, "count {} is too large", count);
  if (count > 0) {
    required(static_cast<const std::byte*>(in), "in");
    required(static_cast<const std::byte*>(out), "out");
  }
}

void check_op(tnt_op_t op) {
  if (!is_op(op)) fail(TNT_INVALID_ARGUMENT, "op {} is not a tnt_op_t", static_cast<int>(op));
}

void check_rank(const Communicator& communicator, int rank, const char* what) {
  if (rank < 0 || rank >= communicator.size()) {
    fail(TNT_INVALID_ARGUMENT, "{} {} is not one of the communicator's {} ranks", what, rank, communicator.size());
  }
}

void check_peer(const Communicator& communicator, int peer, const char* what) {
  check_rank(communicator, peer, what);
  if (peer == communicator.rank()) fail(TNT_INVALID_ARGUMENT, "{} {} is the calling rank itself", what, peer);
}

void check_members(const Communicator& communicator, std::span<const int> members) {
  std::set<int> seen;
  for (const int member : members) {
    check_rank(communicator, member, "member");
    if (!seen.insert(member).second) fail(TNT_INVALID_ARGUMENT, "rank {} is in ranks twice", member);
  }
  if (seen.contains(communicator.rank())) return;
  fail(TNT_INVALID_ARGUMENT, "the calling rank {} is not in ranks: only members call this", communicator.rank());
}

tnt_work_t make_work(std::shared_ptr<Waitable> state) {
  return make_handle(std::make_unique<tnt_work>(tnt_work{std::move(state)}));
}

CallContext context() { return Runtime::get().context(); }

// Created by the first call with a stream, which all ranks make.
std::shared_ptr<DeviceCollectives> device_collectives_of(tnt_comm& on, StreamHandle stream) {
  const std::scoped_lock lock(on.device_mutex);
  if (on.device_collectives) return on.device_collectives;
  const CallContext call{.timeout = Runtime::get().settings().timeout, .detail = "connecting devices"};
  on.executor.run([&] {
    on.device_collectives = std::make_shared<DeviceCollectives>(
        connect_devices(device_index_of(stream), *on.communicator, Runtime::get().settings(), call));
  });
  return on.device_collectives;
}

// With a stream, on_device(DeviceCommunicator&) enqueues. Without one, on_host(Communicator&, context) blocks: it runs in this
// thread, or in the executor's if the caller wants a handle.
template <typename OnDevice, typename OnHost>
void run(tnt_comm& on, Executor& executor, StreamHandle stream, tnt_work_t* work, const OnDevice& on_device,
         const OnHost& on_host) {
  if (stream != nullptr) {
    auto state = device_collectives_of(on, stream)->enqueue(stream, work != nullptr, on_device);
    if (work != nullptr) *work = make_work(std::move(state));
    return;
  }
  const auto operation = [on_host, &on, call = context()] { on_host(*on.communicator, call); };
  if (work == nullptr) {
    executor.run(operation);
  } else {
    *work = make_work(executor.start(operation));
  }
}

// check(Communicator&) throws if an argument does not fit.
template <typename Check, typename OnDevice, typename OnHost>
void run_collective(tnt_comm_t comm, StreamHandle stream, tnt_work_t* work, const Check& check, const OnDevice& on_device,
                    const OnHost& on_host) {
  if (stream == nullptr && work == nullptr) {
    const Turn turn(comm);
    if (turn.began()) {
      check(*turn->communicator);
      return on_host(*turn->communicator, context());
    }
  }
  const Live on(comm);
  check(*on->communicator);
  run(
      *on, on->executor, stream, work, [&](DeviceCommunicator& devices) { on_device(*on, devices); }, on_host);
}

template <typename Check>
void run_collective(tnt_comm_t comm, const Call& call, const void* in, void* out, StreamHandle stream, tnt_work_t* work,
                    const Check& check) {
  run_collective(
      comm, stream, work, check, [&](tnt_comm& /*on*/, DeviceCommunicator& devices) { devices.collective(call, in, out, {}); },
      [=](Communicator& communicator, const CallContext& context) {
        dispatch_collective(communicator, call, in, out, context);
      });
}

}  // namespace

extern "C" {

tnt_status_t tnt_comm_world(tnt_comm_t* comm) {
  return guarded_in_forks([&] { required(comm, "comm") = Runtime::world_handle(); });
}

tnt_status_t tnt_comm_split(tnt_comm_t comm, int color, int key, tnt_comm_t* part) {
  return guarded([&] {
    required(part, "part") = nullptr;
    const Live on(comm);
    std::unique_ptr<Communicator> group;
    on->executor.run([&] { group = on->communicator->split(color, key, context()); });
    if (!group) return;
    *part = make_comm(std::move(group));
  });
}

tnt_status_t tnt_comm_create_group(tnt_comm_t comm, const int* ranks, size_t n_ranks, int tag, tnt_comm_t* group) {
  return guarded([&] {
    required(group, "group") = nullptr;
    const Live on(comm);
    Communicator& parent = *on->communicator;
    if (n_ranks > 0) required(ranks, "ranks");
    const std::span<const int> members(ranks, n_ranks);
    check_members(parent, members);
    *group = make_comm(parent.create_group(members, tag, context()));
  });
}

tnt_status_t tnt_comm_rank(tnt_comm_t comm, int* rank) {
  return guarded_in_forks([&] { required(rank, "rank") = Live(comm)->communicator->rank(); });
}

tnt_status_t tnt_comm_size(tnt_comm_t comm, int* size) {
  return guarded_in_forks([&] { required(size, "size") = Live(comm)->communicator->size(); });
}

tnt_status_t tnt_comm_local_rank(tnt_comm_t comm, int* local_rank) {
  return guarded_in_forks([&] { required(local_rank, "local_rank") = Live(comm)->communicator->local_rank(); });
}

tnt_status_t tnt_comm_local_size(tnt_comm_t comm, int* local_size) {
  return guarded_in_forks([&] { required(local_size, "local_size") = Live(comm)->communicator->local_size(); });
}

tnt_status_t tnt_comm_transport(tnt_comm_t comm, const char** name) {
  return guarded_in_forks([&] { required(name, "name") = Live(comm)->communicator->transport(); });
}

tnt_status_t tnt_comm_abort(tnt_comm_t comm, const char* reason) {
  return guarded([&] {
    const Live on(comm);
    on->communicator->abort(TNT_ABORTED,
                            fmt::format("rank {}: {}", Runtime::get().settings().rank, reason == nullptr ? "aborted" : reason));
  });
}

tnt_status_t tnt_comm_destroy(tnt_comm_t comm) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] {
    if (Runtime::is_world(comm)) fail(TNT_INVALID_ARGUMENT, "the world communicator ends with tnt_finalize");
    destroy_handle(comm);
  });
}

tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                            tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    const auto check = [&](const Communicator& /*communicator*/) {
      check_op(op);
      check_buffers(in, out, count, dtype);
    };
    run_collective(comm, {.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    const auto check = [&](const Communicator& /*communicator*/) {
      check_op(op);
      check_buffers(in, out, count, dtype);
    };
    run_collective(comm, {.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out, stream, work,
                   check);
  });
}

tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded([&] {
    const auto check = [&](const Communicator& /*communicator*/) { check_buffers(in, out, count, dtype); };
    run_collective(comm, {.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                           tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    const auto check = [&](const Communicator& communicator) {
      check_rank(communicator, root, "root");
      check_buffers(communicator.rank() == root ? in : out, out, count, dtype);
    };
    run_collective(comm, {.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    const auto check = [](const Communicator& /*communicator*/) {};
    const auto on_device = [](tnt_comm& on, DeviceCommunicator& devices) {
      void* const buffer = on.device_collectives->barrier_buffer();
      devices.all_reduce(buffer, buffer, 1, TNT_INT64, TNT_MAX, "barrier");
    };
    run_collective(comm, stream, work, check, on_device,
                   [](Communicator& communicator, const CallContext& call) { communicator.barrier(call); });
  });
}

tnt_status_t tnt_all_to_all(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded([&] {
    const auto check = [&](const Communicator& /*communicator*/) { check_buffers(in, out, count, dtype); };
    run_collective(comm, {.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    const Live on(comm);
    check_peer(*on->communicator, to, "to");
    check_buffers(in, in, count, dtype);
    run(
        *on, on->channels.of(to, Executors::Direction::to), stream, work,
        [&](DeviceCommunicator& devices) { devices.send(in, count, dtype, to, {}); },
        [=](Communicator& communicator, const CallContext& call) { communicator.send(in, count, dtype, to, call); });
  });
}

tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    const Live on(comm);
    check_peer(*on->communicator, from, "from");
    check_buffers(out, out, count, dtype);
    run(
        *on, on->channels.of(from, Executors::Direction::from), stream, work,
        [&](DeviceCommunicator& devices) { devices.recv(out, count, dtype, from, {}); },
        [=](Communicator& communicator, const CallContext& call) { communicator.recv(out, count, dtype, from, call); });
  });
}

tnt_status_t tnt_work_wait(tnt_work_t work, double seconds) {
  return guarded([&] {
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (!Live(work)->state->wait(seconds)) fail(TNT_TIMEOUT, "the operation has not finished within {} s", seconds);
  });
}

tnt_status_t tnt_work_test(tnt_work_t work, int* finished) {
  return guarded_in_forks([&] {
    required(finished, "finished") = 1;  // also when something throws: nobody shall ask again for ever
    refuse_forks();
    *finished = Live(work)->state->wait(0) ? 1 : 0;
  });
}

tnt_status_t tnt_work_destroy(tnt_work_t work) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] { destroy_handle(work); });
}

}  // extern "C"
