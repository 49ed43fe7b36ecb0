// The C functions of collectives and messages.
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/arguments.hpp"
#include "api/boundary.hpp"
#include "api/call_group.hpp"
#include "api/handles.hpp"
#include "api/runtime.hpp"
#include "api/works.hpp"
#include "comm/blocks.hpp"
#include "comm/dispatch_collective.hpp"

namespace {

using namespace tnt;

CallContext context(const tnt_comm& on) { return Runtime::get().context(on); }

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

// check(const Communicator&) throws if an argument does not fit. In a group of calls, copies of on_device and on_host are kept.
template <typename Check, typename OnDevice, typename OnHost>
void run_collective(tnt_comm_t comm, StreamHandle stream, tnt_work_t* work, const Check& check, const OnDevice& on_device,
                    const OnHost& on_host) {
  if (CallGroup::is_open()) {
    const CancellationDeferral deferral;
    return CallGroup::of_thread().add(comm, work, check, [&](tnt_comm& on) {
      return GroupedCall{.stream = stream, .executor = &on.executor, .on_host = on_host, .on_device = on_device};
    });
  }
  if (stream == nullptr && work == nullptr) {
    const InlineCall inline_call(comm);
    if (inline_call.began()) {
      std::optional<CancellationDeferral> deferral;
      if (!inline_call->defers_cancellation) deferral.emplace();
      check(*inline_call->communicator);
      return on_host(*inline_call->communicator, context(*inline_call.operator->()));
    }
  }
  const CancellationDeferral deferral;
  const HandleUse on(comm);
  check(*on->communicator);
  run(
      *on, on->executor, Lane::collectives, stream, work, [&](DeviceCommunicator& devices) { on_device(*on, devices); },
      on_host);
}

template <typename Check>
void run_collective(tnt_comm_t comm, const Call& call, const void* in, void* out, StreamHandle stream, tnt_work_t* work,
                    const Check& check) {
  run_collective(
      comm, stream, work, check, [=](tnt_comm& /*on*/, DeviceCommunicator& devices) { devices.collective(call, in, out, {}); },
      [=](Communicator& communicator, const CallContext& context) {
        dispatch_collective(communicator, call, in, out, context);
      });
}

// message: to or from its peer, as direction says.
template <typename OnHost>
void run_message(tnt_comm_t comm, Executors::Direction direction, const Message& message, StreamHandle stream, tnt_work_t* work,
                 const OnHost& on_host) {
  const bool sends = direction == Executors::Direction::to;
  const auto check = [&](const Communicator& communicator) {
    check_peer(communicator, message.peer, sends ? "to" : "from");
    check_buffer(sends ? message.in : message.out, sends ? "in" : "out", message.count, message.dtype);
  };
  const auto lane = [&](const tnt_comm& on) {
    const int self = on.communicator->rank();
    return sends ? lane_of(self, message.peer) : lane_of(message.peer, self);
  };
  if (CallGroup::is_open()) {
    return CallGroup::of_thread().add(comm, work, check, [&](tnt_comm& on) {
      return GroupedCall{.stream = stream,
                         .executor = &on.channels.of(message.peer, direction),
                         .on_host = on_host,
                         .lane = lane(on),
                         .message = message};
    });
  }
  const HandleUse on(comm);
  check(*on->communicator);
  run(
      *on, on->channels.of(message.peer, direction), lane(*on), stream, work,
      [&](DeviceCommunicator& devices) {
        devices.exchange({&message, 1}, {});
      },
      on_host);
}

}  // namespace

extern "C" {

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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const auto on_device = [=](tnt_comm& /*on*/, DeviceCommunicator& devices) {
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
    const Message message{.in = in, .count = count, .dtype = dtype, .peer = to};
    run_message(comm, Executors::Direction::to, message, stream, work,
                [=](Communicator& communicator, const CallContext& call) { communicator.send(in, count, dtype, to, call); });
  });
}

tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                      tnt_work_t* work) {
  return guarded([&] {
    const Message message{.out = out, .count = count, .dtype = dtype, .peer = from};
    run_message(comm, Executors::Direction::from, message, stream, work,
                [=](Communicator& communicator, const CallContext& call) { communicator.recv(out, count, dtype, from, call); });
  });
}

}  // extern "C"
