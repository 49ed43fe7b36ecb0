// The C functions of communicators and collectives.
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "api/boundary.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "comm/blocks.hpp"
#include "comm/dispatch_collective.hpp"

struct tnt_work {
  std::shared_ptr<tnt::Waitable> state;
};

namespace {

using namespace tnt;

// blocks: how often the buffer has count elements.
void check_buffer(const void* buffer, const char* what, std::size_t count, tnt_dtype_t dtype, std::size_t blocks = 1) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "dtype {} is not a tnt_dtype_t", static_cast<int>(dtype));
  constexpr std::size_t largest_element = 16;
  if (std::size_t bytes = 0; __builtin_mul_overflow(count, largest_element * blocks, &bytes)) {
    fail(TNT_INVALID_ARGUMENT, "count {} is too large", count);
  }
  if (count > 0) required(static_cast<const std::byte*>(buffer), what);
}

// Results are written while inputs are still read, so buffers must not overlap, unless in is the part of out that begins with
// element `in_place`. Counts: elements.
void check_overlap(const void* in, std::size_t in_count, const void* out, std::size_t out_count, tnt_dtype_t dtype,
                   std::optional<std::size_t> in_place) {
  if (in_count == 0 || out_count == 0) return;
  const std::size_t size = dtype_size(dtype);
  const auto from = reinterpret_cast<std::uintptr_t>(in);
  const auto to = reinterpret_cast<std::uintptr_t>(out);
  if (in_place && from == to + *in_place * size) return;
  const bool overlap = from < to ? to - from < in_count * size : from - to < out_count * size;
  if (!overlap) return;
  fail(TNT_INVALID_ARGUMENT,
       "in and out overlap: out begins {} bytes {} in. Use separate buffers, or in place those that the call's comment in "
       "tarantella.h names",
       from < to ? to - from : from - to, from < to ? "after" : "before");
}

// Buffers of a collective, of in_blocks and out_blocks times count elements.
void check_buffers(const void* in, std::size_t in_blocks, const void* out, std::size_t out_blocks, std::size_t count,
                   tnt_dtype_t dtype, std::optional<std::size_t> in_place) {
  check_buffer(in, "in", count, dtype, in_blocks);
  check_buffer(out, "out", count, dtype, out_blocks);
  check_overlap(in, in_blocks * count, out, out_blocks * count, dtype, in_place);
}

// The same size: in == out is in place.
void check_equal_buffers(const void* in, const void* out, std::size_t count, tnt_dtype_t dtype, std::size_t blocks = 1) {
  check_buffers(in, blocks, out, blocks, count, dtype, 0);
}

std::size_t size_of(const Communicator& communicator) { return static_cast<std::size_t>(communicator.size()); }

void check_op(tnt_op_t op, tnt_dtype_t dtype) {
  if (!is_op(op)) fail(TNT_INVALID_ARGUMENT, "op {} is not a tnt_op_t", static_cast<int>(op));
  if (!needs_integers(op) || !is_dtype(dtype) || is_integer(dtype)) return;
  fail(TNT_INVALID_ARGUMENT, "{} needs an integer dtype, not {}", op_name(op), dtype_name(dtype));
}

// The counts of all ranks, copied.
std::vector<std::size_t> read_counts(const Communicator& communicator, const std::size_t* counts, const char* what) {
  std::vector<std::size_t> all(&required(counts, what), counts + size_of(communicator));
  constexpr std::size_t most = SIZE_MAX / 16;  // in bytes of the largest element
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] > most - total) fail(TNT_INVALID_ARGUMENT, "{}[{}] {} is too large", what, rank, all[rank]);
    total += all[rank];
  }
  return all;
}

// The buffers of an uneven form.
void check_uneven(const void* in, std::size_t in_count, const void* out, std::size_t out_count, tnt_dtype_t dtype,
                  std::optional<std::size_t> in_place) {
  check_buffer(in, "in", in_count, dtype);
  check_buffer(out, "out", out_count, dtype);
  check_overlap(in, in_count, out, out_count, dtype, in_place);
}

const std::byte* at(const void* buffer, std::size_t element, tnt_dtype_t dtype) {
  return static_cast<const std::byte*>(buffer) + element * dtype_size(dtype);
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

void check_unused(tnt_comm_t comm) {
  if (comm == nullptr) return;
  const Live on(comm);
  const std::scoped_lock lock(on->device_mutex);
  const std::size_t captured = on->device_collectives ? on->device_collectives->captured_operations() : 0;
  if (captured == 0) return;
  fail(TNT_INVALID_ARGUMENT,
       "CUDA graphs with {} operations of this communicator still exist: destroy them first (cudaGraphExecDestroy and "
       "cudaGraphDestroy)",
       captured);
}

CallContext context(const tnt_comm& on) { return Runtime::get().context(on); }

// index(): this rank's device, asked for in this thread, which may have other default streams than the executor's.
template <typename Index>
std::shared_ptr<DeviceCollectives> connected_devices(tnt_comm& on, const Index& index) {
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

// Created by the first call with a stream, which all ranks make, or by tnt_comm_connect_device.
std::shared_ptr<DeviceCollectives> device_collectives_of(tnt_comm& on, StreamHandle stream) {
  return connected_devices(on, [&] { return device_of_stream(stream); });
}

// With a stream, on_device(DeviceCommunicator&) enqueues on the lane. Without one, on_host(Communicator&, context) blocks: it
// runs in this thread, or in the executor's if the caller wants a handle.
template <typename OnDevice, typename OnHost>
void run(tnt_comm& on, Executor& executor, Lane lane, StreamHandle stream, tnt_work_t* work, const OnDevice& on_device,
         const OnHost& on_host) {
  if (stream != nullptr) {
    auto state = device_collectives_of(on, stream)->enqueue(lane, stream, work != nullptr, on_device);
    if (work != nullptr) *work = make_work(std::move(state));
    return;
  }
  const auto operation = [on_host, &on, call = context(on)] { on_host(*on.communicator, call); };
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
      std::optional<CancellationDeferral> deferral;
      if (!turn->defers_cancellation) deferral.emplace();
      check(*turn->communicator);
      return on_host(*turn->communicator, context(*turn.operator->()));
    }
  }
  const CancellationDeferral deferral;
  const Live on(comm);
  check(*on->communicator);
  run(
      *on, on->executor, Lane::collectives, stream, work, [&](DeviceCommunicator& devices) { on_device(*on, devices); },
      on_host);
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
    on->executor.run([&] { group = on->communicator->split(color, key, context(*on)); });
    if (!group) return;
    *part = make_part(*on, std::move(group));
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
    *group = make_part(*on, parent.create_group(members, tag, context(*on)));
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

tnt_status_t tnt_comm_set_timeout(tnt_comm_t comm, double seconds) {
  return guarded([&] {
    if (!(seconds >= 0 && seconds <= 1e9))
      fail(TNT_INVALID_ARGUMENT, "seconds is {}: expected a number of seconds, or 0", seconds);
    Live(comm)->timeout = seconds;
  });
}

tnt_status_t tnt_comm_connect_device(tnt_comm_t comm, int device) {
  return guarded([&] {
    const Live on(comm);
    const int connected = connected_devices(*on, [&] { return device; })->device().index();
    if (connected == device) return;
    fail(TNT_INVALID_ARGUMENT, "device is {}, but this communicator works on device {} already", device, connected);
  });
}

tnt_status_t tnt_comm_destroy(tnt_comm_t comm) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] {
    if (Runtime::is_world(comm)) fail(TNT_INVALID_ARGUMENT, "the world communicator ends with tnt_finalize");
    check_unused(comm);
    destroy_handle(comm);
  });
}

tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                            tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& /*communicator*/) {
      check_op(op, dtype);
      check_equal_buffers(in, out, count, dtype);
    };
    run_collective(comm, {.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_all_reduce_scaled(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, double scale,
                                   tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& /*communicator*/) {
      if (!std::isfinite(scale)) fail(TNT_INVALID_ARGUMENT, "scale is {}, not a finite number", scale);
      check_equal_buffers(in, out, count, dtype);
      if (is_integer(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not a floating-point type: scale it before", dtype_name(dtype));
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.all_reduce_scaled(in, out, count, dtype, scale, {});
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      const TensorView view{.in = in, .out = out, .count = count, .scale = scale};
      communicator.all_reduce(FusedBuffer({&view, 1}, dtype), TNT_SUM, context);
    });
  });
}

tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_op(op, dtype);
      const std::size_t n = size_of(communicator);
      check_buffers(in, n, out, 1, count, dtype, n == 1 ? std::optional<std::size_t>(0) : std::nullopt);
    };
    run_collective(comm, {.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out, stream, work,
                   check);
  });
}

tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_buffers(in, 1, out, size_of(communicator), count, dtype, static_cast<std::size_t>(communicator.rank()) * count);
    };
    run_collective(comm, {.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                           tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_rank(communicator, root, "root");
      check_equal_buffers(communicator.rank() == root ? in : out, out, count, dtype);
    };
    run_collective(comm, {.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
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
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_equal_buffers(in, out, count, dtype, size_of(communicator));
    };
    run_collective(comm, {.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out, stream, work, check);
  });
}

tnt_status_t tnt_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op, int root,
                        tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_op(op, dtype);
      check_rank(communicator, root, "root");
      check_equal_buffers(in, communicator.rank() == root ? out : in, count, dtype);
    };
    const Call call{.kind = Call::reduce, .dtype = dtype, .op = op, .root = root, .count = count};
    run_collective(comm, call, in, out, stream, work, check);
  });
}

tnt_status_t tnt_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                        tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_rank(communicator, root, "root");
      if (communicator.rank() != root) return check_buffer(in, "in", count, dtype, size_of(communicator));
      check_buffers(in, 1, out, size_of(communicator), count, dtype, static_cast<std::size_t>(root) * count);
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.gather(in, out, count, dtype, root, "gather");
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      communicator.gather(in, out, count, dtype, root, context);
    });
  });
}

tnt_status_t tnt_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                         tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto check = [&](const Communicator& communicator) {
      check_rank(communicator, root, "root");
      const std::size_t blocks = size_of(communicator);
      check_buffer(out, "out", count, dtype, blocks);
      if (communicator.rank() != root) return;
      check_buffer(in, "in", count, dtype, blocks);
      if (out == at(in, static_cast<std::size_t>(root) * count, dtype)) return;
      check_overlap(in, blocks * count, out, count, dtype, std::nullopt);
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.scatter(in, out, count, dtype, root, "scatter");
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      communicator.scatter(in, out, count, dtype, root, context);
    });
  });
}

tnt_status_t tnt_all_gather_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts, tnt_dtype_t dtype,
                              tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto list = std::make_shared<std::vector<std::size_t>>();  // filled when the number of ranks is known
    const auto check = [&](const Communicator& communicator) {
      *list = read_counts(communicator, counts, "counts");
      const Blocks blocks(*list);
      const auto self = static_cast<std::size_t>(communicator.rank());
      check_uneven(in, blocks.size(self), out, blocks.total(), dtype, blocks.begin(self));
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.all_gather_v(in, out, *list, dtype, "all_gather_v");
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      communicator.all_gather_v(in, out, *list, dtype, context);
    });
  });
}

tnt_status_t tnt_reduce_scatter_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts, tnt_dtype_t dtype,
                                  tnt_op_t op, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    const auto list = std::make_shared<std::vector<std::size_t>>();
    const auto check = [&](const Communicator& communicator) {
      check_op(op, dtype);
      *list = read_counts(communicator, counts, "counts");
      const Blocks blocks(*list);
      const std::size_t own = blocks.size(static_cast<std::size_t>(communicator.rank()));
      check_uneven(in, blocks.total(), out, own, dtype, list->size() == 1 ? std::optional<std::size_t>(0) : std::nullopt);
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.reduce_scatter_v(in, out, *list, dtype, op, "reduce_scatter_v");
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      communicator.reduce_scatter_v(in, out, *list, dtype, op, context);
    });
  });
}

tnt_status_t tnt_all_to_all_v(tnt_comm_t comm, const void* in, void* out, const size_t* send_counts, const size_t* recv_counts,
                              tnt_dtype_t dtype, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    struct Lists {
      std::vector<std::size_t> sent;
      std::vector<std::size_t> received;
    };
    const auto lists = std::make_shared<Lists>();
    const auto check = [&](const Communicator& communicator) {
      lists->sent = read_counts(communicator, send_counts, "send_counts");
      lists->received = read_counts(communicator, recv_counts, "recv_counts");
      const auto self = static_cast<std::size_t>(communicator.rank());
      if (lists->sent[self] != lists->received[self]) {
        fail(TNT_INVALID_ARGUMENT,
             "send_counts[{}] is {} and recv_counts[{}] is {}, but the calling rank {} gets what it sends", self,
             lists->sent[self], self, lists->received[self], self);
      }
      check_uneven(in, Blocks(lists->sent).total(), out, Blocks(lists->received).total(), dtype,
                   lists->sent.size() == 1 ? std::optional<std::size_t>(0) : std::nullopt);
    };
    const auto on_device = [&](tnt_comm& /*on*/, DeviceCommunicator& devices) {
      devices.all_to_all_v(in, out, lists->sent, lists->received, dtype, "all_to_all_v");
    };
    run_collective(comm, stream, work, check, on_device, [=](Communicator& communicator, const CallContext& context) {
      communicator.all_to_all_v(in, out, lists->sent, lists->received, dtype, context);
    });
  });
}

tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    const Live on(comm);
    check_peer(*on->communicator, to, "to");
    check_buffer(in, "in", count, dtype);
    run(
        *on, on->channels.of(to, Executors::Direction::to), lane_of(on->communicator->rank(), to), stream, work,
        [&](DeviceCommunicator& devices) { devices.send(in, count, dtype, to, {}); },
        [=](Communicator& communicator, const CallContext& call) { communicator.send(in, count, dtype, to, call); });
  });
}

tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    const Live on(comm);
    check_peer(*on->communicator, from, "from");
    check_buffer(out, "out", count, dtype);
    run(
        *on, on->channels.of(from, Executors::Direction::from), lane_of(from, on->communicator->rank()), stream, work,
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

tnt_status_t tnt_work_wait_any(const tnt_work_t* works, size_t n, double seconds, size_t* index) {
  return guarded([&] {
    required(index, "index") = n;
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (n > 0) required(works, "works");
    std::deque<Live<tnt_work>> live;  // none of them is destroyed meanwhile
    std::vector<Waitable*> states;
    for (const tnt_work_t work : std::span(works, n)) {
      states.push_back(work == nullptr ? nullptr : live.emplace_back(work)->state.get());
    }
    if (live.empty()) fail(TNT_INVALID_ARGUMENT, "works has no operation to wait for");
    const auto finished = wait_any(states, seconds);
    if (!finished) fail(TNT_TIMEOUT, "none of {} operations has finished within {} s", live.size(), seconds);
    *index = finished->index;
    if (finished->error) throw Error(*finished->error);
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
