// The C functions of collectives and messages, and of works: operations that were started.
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "api/arguments.hpp"
#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "comm/blocks.hpp"
#include "comm/executor.hpp"

struct tnt_work {
  std::shared_ptr<tnt::Waitable> state;
};

namespace tnt {
namespace {

tnt_work_t make_work(std::shared_ptr<Waitable> state) {
  return make_handle(std::make_unique<tnt_work>(tnt_work{std::move(state)}));
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

// The counts begin where the caller's do; the result has copies of all of them, and the call points there.
std::shared_ptr<const RankCounts> check_uneven_arguments(const Communicator& communicator, Collective& call) {
  const bool exchanges = call.kind == Call::all_to_all_v;
  const auto self = static_cast<std::size_t>(communicator.rank());
  const auto lists = std::make_shared<RankCounts>();
  if (reduces(call.kind)) check_op(call.op, call.dtype);
  lists->sent = read_counts(communicator, call.counts.data(), exchanges ? "send_counts" : "counts");
  if (exchanges) lists->received = read_counts(communicator, call.recv_counts.data(), "recv_counts");
  call.counts = lists->sent;
  call.recv_counts = lists->received;
  const Blocks blocks(lists->sent);
  const auto alone = call.counts.size() == 1 ? std::optional<std::size_t>(0) : std::nullopt;
  if (!exchanges) static_cast<Call&>(call) = uneven_call(call.kind, call.counts, call.dtype, call.op);
  if (call.kind == Call::all_gather_v) {
    check_uneven(call.in, blocks.size(self), call.out, blocks.total(), call.dtype, blocks.begin(self));
  } else if (call.kind == Call::reduce_scatter_v) {
    check_uneven(call.in, blocks.total(), call.out, blocks.size(self), call.dtype, alone);
  } else {
    if (call.counts[self] != call.recv_counts[self]) {
      fail(TNT_INVALID_ARGUMENT, "send_counts[{}] is {} and recv_counts[{}] is {}, but the calling rank {} gets what it sends",
           self, call.counts[self], self, call.recv_counts[self], self);
    }
    check_uneven(call.in, blocks.total(), call.out, Blocks(call.recv_counts).total(), call.dtype, alone);
  }
  return lists;
}

// A call that does not begin at once. With a stream, it is enqueued on its lane. Without one it blocks: in this thread, or in
// the executor's if the caller wants a handle.
[[gnu::noinline]] void start(tnt_comm_t comm, Collective& call, StreamHandle stream, tnt_work_t* work) {
  const CancellationDeferral deferral;
  const HandleUse on(comm);
  const auto counts = check_arguments(*on->communicator, call);
  if (stream != nullptr) {  // created by the first call with a stream, which all ranks make, or by tnt_comm_connect_device
    const auto devices = connected_devices(*on, [&] { return device_of_stream(stream); });
    auto state = devices->enqueue(lane_of(call, on->communicator->rank()), stream, work != nullptr,
                                  [&](DeviceCommunicator& lane) { devices->run(lane, call); });
    if (work != nullptr) *work = make_work(std::move(state));
    return;
  }
  const auto operation = [&on = *on, call, counts, context = Runtime::get().context(*on)] {
    on.communicator->run(call, context);
  };
  if (work == nullptr) {
    on->executor_of(call).run(operation);
  } else {
    *work = make_work(on->executor_of(call).start(operation));
  }
}

// A collective of an idle communicator begins at once in this thread.
void run(tnt_comm_t comm, Collective&& call, StreamHandle stream, tnt_work_t* work) {
  if (CallGroup::is_open()) [[unlikely]]
    return CallGroup::of_thread().add(comm, call, stream, work);
  if (stream == nullptr && work == nullptr && !is_message(call.kind)) {
    const InlineCall inline_call(comm);
    if (inline_call.began()) {
      std::optional<CancellationDeferral> deferral;
      if (!inline_call->defers_cancellation) deferral.emplace();
      const auto counts = check_arguments(*inline_call->communicator, call);
      return inline_call->communicator->run(call, Runtime::get().context(*inline_call.operator->()));
    }
  }
  start(comm, call, stream, work);
}

}  // namespace

std::shared_ptr<const RankCounts> check_with_ranks(const Communicator& communicator, Collective& call) {
  const std::size_t count = call.count;
  const std::size_t n = size_of(communicator);
  const bool is_root = communicator.rank() == call.root;
  const auto root = static_cast<std::size_t>(call.root);
  switch (call.kind) {
    case Call::reduce_scatter:
      check_op(call.op, call.dtype);
      check_buffers(call.in, n, call.out, 1, count, call.dtype, n == 1 ? std::optional<std::size_t>(0) : std::nullopt);
      break;
    case Call::all_gather:
      check_buffers(call.in, 1, call.out, n, count, call.dtype, static_cast<std::size_t>(communicator.rank()) * count);
      break;
    case Call::broadcast:
      check_rank(communicator, call.root, "root");
      check_equal_buffers(is_root ? call.in : call.out, call.out, count, call.dtype);
      break;
    case Call::all_to_all: check_equal_buffers(call.in, call.out, count, call.dtype, n); break;
    case Call::reduce:
      check_op(call.op, call.dtype);
      check_rank(communicator, call.root, "root");
      check_equal_buffers(call.in, is_root ? call.out : call.in, count, call.dtype);
      break;
    case Call::gather:
      check_rank(communicator, call.root, "root");
      if (is_root) {
        check_buffers(call.in, 1, call.out, n, count, call.dtype, root * count);
      } else {
        check_buffer(call.in, "in", count, call.dtype, n);
      }
      break;
    case Call::scatter:
      check_rank(communicator, call.root, "root");
      check_buffer(call.out, "out", count, call.dtype, n);
      if (!is_root) break;
      check_buffer(call.in, "in", count, call.dtype, n);
      if (call.out == at(call.in, root * count, call.dtype)) break;
      check_overlap(call.in, n * count, call.out, count, call.dtype, std::nullopt);
      break;
    case Call::send:
      check_peer(communicator, call.root, "to");
      check_buffer(call.in, "in", count, call.dtype);
      break;
    case Call::recv:
      check_peer(communicator, call.root, "from");
      check_buffer(call.out, "out", count, call.dtype);
      break;
    case Call::all_gather_v:
    case Call::reduce_scatter_v:
    case Call::all_to_all_v: return check_uneven_arguments(communicator, call);
    default: break;
  }
  return nullptr;
}

}  // namespace tnt

using namespace tnt;

extern "C" {

tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                            tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::all_reduce, .dtype = dtype, .op = op, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_all_reduce_scaled(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, double scale,
                                   tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::all_reduce, .dtype = dtype, .count = count}, in, out, {}, {}, scale}, stream, work);
  });
}

tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::reduce_scatter, .dtype = dtype, .op = op, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::all_gather, .dtype = dtype, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                           tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::broadcast, .dtype = dtype, .root = root, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] { run(comm, {{.kind = Call::barrier}}, stream, work); });
}

tnt_status_t tnt_all_to_all(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_stream_t stream,
                            tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::all_to_all, .dtype = dtype, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op, int root,
                        tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::reduce, .dtype = dtype, .op = op, .root = root, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                        tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::gather, .dtype = dtype, .root = root, .count = count}, in, out}, stream, work);
  });
}

tnt_status_t tnt_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                         tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::scatter, .dtype = dtype, .root = root, .count = count}, in, out}, stream, work);
  });
}

// The number of ranks, and so of counts, is known when the communicator is.

tnt_status_t tnt_all_gather_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts, tnt_dtype_t dtype,
                              tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::all_gather_v, .dtype = dtype}, in, out, {counts, std::size_t{0}}}, stream, work);
  });
}

tnt_status_t tnt_reduce_scatter_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts, tnt_dtype_t dtype,
                                  tnt_op_t op, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm, {{.kind = Call::reduce_scatter_v, .dtype = dtype, .op = op}, in, out, {counts, std::size_t{0}}}, stream, work);
  });
}

tnt_status_t tnt_all_to_all_v(tnt_comm_t comm, const void* in, void* out, const size_t* send_counts, const size_t* recv_counts,
                              tnt_dtype_t dtype, tnt_stream_t stream, tnt_work_t* work) {
  return guarded_collective([&] {
    run(comm,
        {{.kind = Call::all_to_all_v, .dtype = dtype}, in, out, {send_counts, std::size_t{0}}, {recv_counts, std::size_t{0}}},
        stream, work);
  });
}

tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] { run(comm, {{.kind = Call::send, .dtype = dtype, .root = to, .count = count}, in}, stream, work); });
}

tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    run(comm, {{.kind = Call::recv, .dtype = dtype, .root = from, .count = count}, nullptr, out}, stream, work);
  });
}

tnt_status_t tnt_work_wait(tnt_work_t work, double seconds) {
  return guarded([&] {
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (!HandleUse(work)->state->wait(seconds)) fail(TNT_TIMEOUT, "the operation has not finished within {} s", seconds);
  });
}

tnt_status_t tnt_work_wait_any(const tnt_work_t* works, size_t n, double seconds, size_t* index) {
  return guarded([&] {
    required(index, "index") = n;
    if (std::isnan(seconds)) fail(TNT_INVALID_ARGUMENT, "seconds is not a number");
    if (n > 0) required(works, "works");
    std::deque<HandleUse<tnt_work>> live;  // none of them is destroyed meanwhile
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
    *finished = HandleUse(work)->state->wait(0) ? 1 : 0;
  });
}

tnt_status_t tnt_work_destroy(tnt_work_t work) {
  if (is_fork_of_rank()) return TNT_SUCCESS;
  return guarded([&] { destroy_handle(work); });
}

}  // extern "C"
