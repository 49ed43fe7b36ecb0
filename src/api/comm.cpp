// The C functions of communicators and collectives.
#include <cmath>
#include <set>
#include <span>

#include "api/boundary.hpp"
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

// Runs the operation in this thread, or starts it and returns a handle.
template <typename Operation>
void run_or_start(Executor& executor, const Operation& operation, tnt_work_t* work) {
  if (work == nullptr) {
    executor.run(operation);
  } else {
    *work = new tnt_work{executor.start(operation)};
  }
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

// With a stream, on_device(DeviceCommunicator&) enqueues; without one, on_host(context) blocks.
template <typename OnDevice, typename OnHost>
void run(tnt_comm& on, Executor& executor, StreamHandle stream, tnt_work_t* work, const OnDevice& on_device,
         const OnHost& on_host) {
  if (stream == nullptr) {
    const auto operation = [on_host, call = context()] { on_host(call); };
    return run_or_start(executor, operation, work);
  }
  auto state = device_collectives_of(on, stream)->enqueue(stream, work != nullptr, on_device);
  if (work != nullptr) *work = new tnt_work{std::move(state)};
}

void run_collective(tnt_comm& on, const Call& call, const void* in, void* out, StreamHandle stream, tnt_work_t* work) {
  run(
      on, on.executor, stream, work, [&](DeviceCommunicator& devices) { devices.collective(call, in, out, {}); },
      [=, &on](const CallContext& context) { dispatch_collective(*on.communicator, call, in, out, context); });
}

}  // namespace

extern "C" {

tnt_status_t tnt_comm_world(tnt_comm_t* comm) {
  return guarded([&] { required(comm, "comm") = &Runtime::get().world(); });
}

tnt_status_t tnt_comm_split(tnt_comm_t comm, int color, int key, tnt_comm_t* part) {
  return guarded([&] {
    required(part, "part") = nullptr;
    std::unique_ptr<Communicator> group;
    required(comm, "comm").executor.run([&] { group = comm->communicator->split(color, key, context()); });
    if (!group) return;
    auto made = std::make_unique<tnt_comm>();
    made->communicator = std::move(group);
    *part = made.release();
  });
}

tnt_status_t tnt_comm_create_group(tnt_comm_t comm, const int* ranks, size_t n_ranks, int tag, tnt_comm_t* group) {
  return guarded([&] {
    required(group, "group") = nullptr;
    Communicator& parent = *required(comm, "comm").communicator;
    if (n_ranks > 0) required(ranks, "ranks");
    const std::span<const int> members(ranks, n_ranks);
    check_members(parent, members);
    auto made = std::make_unique<tnt_comm>();
    made->communicator = parent.create_group(members, tag, context());
    *group = made.release();
  });
}

tnt_status_t tnt_comm_rank(tnt_comm_t comm, int* rank) {
  return guarded([&] { required(rank, "rank") = required(comm, "comm").communicator->rank(); });
}

tnt_status_t tnt_comm_size(tnt_comm_t comm, int* size) {
  return guarded([&] { required(size, "size") = required(comm, "comm").communicator->size(); });
}

tnt_status_t tnt_comm_local_rank(tnt_comm_t comm, int* local_rank) {
  return guarded([&] { required(local_rank, "local_rank") = required(comm, "comm").communicator->local_rank(); });
}

tnt_status_t tnt_comm_local_size(tnt_comm_t comm, int* local_size) {
  return guarded([&] { required(local_size, "local_size") = required(comm, "comm").communicator->local_size(); });
}

tnt_status_t tnt_comm_transport(tnt_comm_t comm, const char** name) {
  return guarded([&] { required(name, "name") = required(comm, "comm").communicator->transport(); });
}

tnt_status_t tnt_comm_abort(tnt_comm_t comm, const char* reason) {
  return guarded([&] {
    Communicator& communicator = *required(comm, "comm").communicator;
    communicator.abort(TNT_ABORTED,
                       fmt::format("rank {}: {}", Runtime::get().settings().rank, reason == nullptr ? "aborted" : reason));
  });
}

tnt_status_t tnt_comm_destroy(tnt_comm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return;
    if (comm == &Runtime::get().world()) fail(TNT_INVALID_ARGUMENT, "the world communicator ends with tnt_finalize");
    delete comm;
  });
}

tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                            tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_op(op);
    check_buffers(in, out, count, dtype);
    run_collective(on, {.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out, stream, work);
  });
}

tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_op(op);
    check_buffers(in, out, count, dtype);
    run_collective(on, {.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out, stream, work);
  });
}

tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_buffers(in, out, count, dtype);
    run_collective(on, {.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out, stream, work);
  });
}

tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                           tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    const Communicator& communicator = *on.communicator;
    check_rank(communicator, root, "root");
    check_buffers(communicator.rank() == root ? in : out, out, count, dtype);
    run_collective(on, {.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out, stream, work);
  });
}

tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    const auto on_device = [&](DeviceCommunicator& devices) {
      void* const buffer = on.device_collectives->barrier_buffer();
      devices.all_reduce(buffer, buffer, 1, TNT_INT64, TNT_MAX, "barrier");
    };
    run(on, on.executor, stream, work, on_device, [&on](const CallContext& call) { on.communicator->barrier(call); });
  });
}

tnt_status_t tnt_all_to_all(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_buffers(in, out, count, dtype);
    run_collective(on, {.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out, stream, work);
  });
}

tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_peer(*on.communicator, to, "to");
    check_buffers(in, in, count, dtype);
    run(
        on, on.channels.of(to, Executors::Direction::to), stream, work,
        [&](DeviceCommunicator& devices) { devices.send(in, count, dtype, to, {}); },
        [=, &on](const CallContext& call) { on.communicator->send(in, count, dtype, to, call); });
  });
}

tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    tnt_comm& on = required(comm, "comm");
    check_peer(*on.communicator, from, "from");
    check_buffers(out, out, count, dtype);
    run(
        on, on.channels.of(from, Executors::Direction::from), stream, work,
        [&](DeviceCommunicator& devices) { devices.recv(out, count, dtype, from, {}); },
        [=, &on](const CallContext& call) { on.communicator->recv(out, count, dtype, from, call); });
  });
}

tnt_status_t tnt_work_wait(tnt_work_t work, double seconds) {
  return guarded([&] {
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (!required(work, "work").state->wait(seconds)) fail(TNT_TIMEOUT, "the operation has not finished within {} s", seconds);
  });
}

tnt_status_t tnt_work_test(tnt_work_t work, int* finished) {
  return guarded([&] {
    required(finished, "finished") = 1;  // also when wait throws: a failed operation has finished
    *finished = required(work, "work").state->wait(0) ? 1 : 0;
  });
}

tnt_status_t tnt_work_destroy(tnt_work_t work) {
  return guarded([&] { delete work; });
}

}  // extern "C"
