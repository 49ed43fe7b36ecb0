#include "comm/nccl/communicator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "comm/error_messages.hpp"
#include "comm/nccl/init.hpp"
#include "comm/nccl/registered_memory.hpp"
#include "kernels/cpu/pack.hpp"

namespace tnt {
namespace {

nccl::ncclDataType_t nccl_type(tnt_dtype_t dtype) {
  switch (dtype) {
    case TNT_FLOAT32: return nccl::ncclFloat32;
    case TNT_FLOAT64: return nccl::ncclFloat64;
    case TNT_FLOAT16: return nccl::ncclFloat16;
    case TNT_BFLOAT16: return nccl::ncclBfloat16;
    case TNT_INT8: return nccl::ncclInt8;
    case TNT_UINT8: return nccl::ncclUint8;
    case TNT_INT32: return nccl::ncclInt32;
    case TNT_INT64: return nccl::ncclInt64;
    case TNT_UINT32: return nccl::ncclUint32;
    case TNT_UINT64: return nccl::ncclUint64;
    case TNT_FLOAT8_E4M3:
    case TNT_FLOAT8_E5M2: break;
  }
  fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype));
}

nccl::ncclRedOp_t nccl_op(tnt_op_t op) {
  switch (op) {
    case TNT_SUM: return nccl::ncclSum;
    case TNT_AVG: return nccl::ncclAvg;
    case TNT_MIN: return nccl::ncclMin;
    case TNT_MAX: return nccl::ncclMax;
    case TNT_PROD: return nccl::ncclProd;
    default: break;
  }
  if (needs_integers(op)) {
    fail(TNT_UNSUPPORTED, "NCCL has no operation {}: set TNT_DEVICE_TRANSPORT=staged, or reduce in host memory", op_name(op));
  }
  fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(op));
}

// CUDA releases what a graph holds a moment after the graph was destroyed.
constexpr double graph_release_seconds = 2.0;

// One block of the same size to and from each rank.
std::vector<Message> all_to_all_messages(int ranks, const void* in, void* out, std::size_t count, tnt_dtype_t dtype) {
  std::vector<Message> messages;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * count * dtype_size(dtype);
    messages.push_back({.in = static_cast<const std::byte*>(in) + offset, .count = count, .dtype = dtype, .peer = peer});
    messages.push_back({.out = static_cast<std::byte*>(out) + offset, .count = count, .dtype = dtype, .peer = peer});
  }
  return messages;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Device& device, Communicator& host, const NcclOptions& options,
                                   std::shared_ptr<const NcclLibrary> library, int job_rank,
                                   const std::function<void(NcclHandle&)>& open)
    : device_(device),
      host_(host),
      options_(options),
      job_rank_(job_rank),
      library_(std::move(library)),
      stream_(device, Priority::high),
      root_(library_, options.timeout, [this] { throw_if_aborted(); }),
      in_graphs_(std::make_shared<int>()) {
  try {
    device_.with_current_device([&] {
      open(root_);
      if (!library_->launches_in_threads() || host_.size() == 1) return;
      blocking_.emplace(library_, options.timeout, [this] { throw_if_aborted(); });
      blocking_->make_blocking_child(root_, host_.rank(), nccl_config(options_));
    });
  } catch (const Error& error) {
    throw Error(abort_job(host_, error.status(), fmt::format("rank {}: {}", job_rank_, error.what())));
  }
  std::unique_ptr<Communicator> progress_exchange;
  if (host_.size() > 1)
    progress_exchange = host_.split(0, 0, {.timeout = options_.timeout, .detail = "the watchdogs' progress exchange"});
  watchdog_ = std::make_unique<Watchdog>(device_, stream_.get(), host_, std::move(progress_exchange), job_rank_,
                                         options_.timeout, static_cast<WatchedComm&>(*this));
}

// A communicator that was not closed is aborted. Closing a blocking one waits for its work, which nothing could interrupt, so
// the work is waited for first.
NcclCommunicator::~NcclCommunicator() {
  const std::size_t captured = captured_operations();
  if (captured > 0) {
    log(LogLevel::warning,
        "rank {}: a CUDA graph with {} operations of a communicator of {} still exists: the communicator is not freed, and the "
        "graph must not run again (destroy graphs before what they use)",
        job_rank_, captured, version());
    if (!blocking_) root_.leave();  // its abort would wait for the graph
  } else if (wait_until_idle()) {
    device_.with_current_device([&] {
      if (blocking_) blocking_->close();
      root_.close();
    });
  }
  watchdog_->stop();
  abort();
}

bool NcclCommunicator::wait_until_idle() {
  try {
    for (const Deadline deadline(options_.timeout); !deadline.passed();) {
      throw_if_aborted();
      if (device_.idle(stream())) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    log(LogLevel::warning, "rank {}: the work of a communicator has not ended within {} s: it is aborted", job_rank_,
        options_.timeout);
  } catch (const Error& error) {
    log(LogLevel::info, "{}", error.what());
  }
  return false;
}

void NcclCommunicator::check() {
  throw_if_aborted();
  if (const auto error = async_error()) {
    throw Error(error->status(), fmt::format("rank {}: {}", job_rank_, error->what()));
  }
}

bool NcclCommunicator::follow(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  watchdog_->follow(stream);
  return true;
}

bool NcclCommunicator::follow_last(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  return watchdog_->follow_last(stream);
}

std::size_t NcclCommunicator::operations_in_graphs() const noexcept {
  return static_cast<std::size_t>(in_graphs_.use_count()) - 1;
}

std::size_t NcclCommunicator::captured_operations() {
  for (const Deadline deadline(graph_release_seconds); operations_in_graphs() > 0 && !deadline.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return operations_in_graphs();
}

// A graph that still exists holds the child, and NCCL would wait for it in the child's abort. The root's abort is enough to end
// the child's work.
void NcclCommunicator::abort() noexcept {
  try {
    device_.with_current_device([&] {
      root_.abort();
      if (!blocking_) return;
      operations_in_graphs() > 0 ? blocking_->leave() : blocking_->abort();
    });
  } catch (const Error& error) {
    log(LogLevel::warning, "rank {}: the communicator of {} is not aborted: {}", job_rank_, version(), error.what());
  }
}

void NcclCommunicator::throw_if_aborted() {
  if (watchdog_) watchdog_->throw_if_aborted();
  if (const auto error = host_.async_error()) throw Error(*error);
}

template <typename Use>
void NcclCommunicator::watched(const Call& call, const char* what, std::string_view detail, Use&& use) {
  const std::scoped_lock lock(mutex_);
  watchdog_->throw_if_aborted();
  try {
    const bool captured = !(*watchdog_)(call, detail, [&] {
      if (call.count > 0) device_.with_current_device([&] { handle().call(what, std::forward<Use>(use)); });
    });
    if (captured) device_.keep_in_graph(stream(), in_graphs_);
  } catch (const std::exception& error) {
    fail_on_all_ranks(to_error(error), describe_operation(call, 0, detail));
  }
}

void NcclCommunicator::fail_on_all_ranks(const Error& error, const std::string& what) {
  watchdog_->wait_for_cause(error);
  watchdog_->abort_and_throw(error.status(), fmt::format("rank {}: {}: {}", job_rank_, what, error.what()));
}

// All ranks register memory, or none: a rank without it would choose another algorithm.
std::shared_ptr<void> NcclCommunicator::registered_memory(std::size_t bytes) {
  if (bytes == 0 || size() == 1 || options_.deterministic || !library_->registers_memory()) return nullptr;
  std::shared_ptr<RegisteredMemory> memory;
  try {
    memory = std::make_shared<RegisteredMemory>(device_, library_, bytes);
  } catch (const Error& error) {
    log(LogLevel::info, "rank {}: {} does without registered memory: {}", job_rank_, version(), error.what());
  }
  std::int32_t on_all_ranks = memory ? 1 : 0;
  host_.run({{.kind = Call::all_reduce, .dtype = TNT_INT32, .op = TNT_MIN, .count = 1}, &on_all_ranks, &on_all_ranks},
            {.timeout = options_.timeout, .detail = "agreeing on memory for NCCL"});
  if (on_all_ranks == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  try {
    device_.with_current_device([&] { memory->register_with(handle()); });
  } catch (const Error& error) {
    fail_on_all_ranks(error, "registering memory (NCCL_WIN_ENABLE=0 and NCCL_LOCAL_REGISTER=0 do without)");
  }
  void* const address = memory->get();
  return {std::move(memory), address};
}

void NcclCommunicator::enqueue_collective(const Collective& call, std::string_view detail) {
  if (call.scale) return enqueue_scaled(call, detail);
  if (call.kind == Call::reduce_scatter_v) return enqueue_uneven(call, detail);
  const void* const in = call.in;
  void* const out = call.out;
  const nccl::ncclDataType_t type = nccl_type(call.dtype);
  const nccl::ncclRedOp_t op = nccl_op(call.op);
  const std::size_t count = call.count;
  switch (call.kind) {
    case Call::all_reduce:
      return watched(call, "ncclAllReduce", detail,
                     [&](auto comm) { return TNT_NCCL(*library_, AllReduce, in, out, count, type, op, comm, stream()); });
    case Call::reduce_scatter:
      return watched(call, "ncclReduceScatter", detail,
                     [&](auto comm) { return TNT_NCCL(*library_, ReduceScatter, in, out, count, type, op, comm, stream()); });
    case Call::reduce:
      return watched(call, "ncclReduce", detail, [&](auto comm) {
        return TNT_NCCL(*library_, Reduce, in, out, count, type, op, call.root, comm, stream());
      });
    case Call::all_gather:
      return watched(call, "ncclAllGather", detail,
                     [&](auto comm) { return TNT_NCCL(*library_, AllGather, in, out, count, type, comm, stream()); });
    case Call::broadcast:
      return watched(call, "ncclBroadcast", detail, [&](auto comm) {
        return TNT_NCCL(*library_, Broadcast, in, out, count, type, call.root, comm, stream());
      });
    default: {  // all_to_all
      if ((*library_)->AlltoAll != nullptr) {
        return watched(call, "ncclAlltoAll", detail,
                       [&](auto comm) { return TNT_NCCL(*library_, AlltoAll, in, out, count, type, comm, stream()); });
      }
      const auto messages = all_to_all_messages(size(), in, out, count, call.dtype);
      return watched(call, "ncclGroupEnd", detail, [&](auto comm) { return send_and_receive(comm, messages); });
    }
  }
}

// NCCL reads the scale, of the data's type, in the call, and the operation may end as soon as the call has returned.
void NcclCommunicator::enqueue_scaled(const Collective& call, std::string_view detail) {
  const nccl::ncclDataType_t type = nccl_type(call.dtype);
  std::array<std::byte, sizeof(double)> scalar{};
  scale(scalar.data(), call.dtype, &*call.scale, TNT_FLOAT64, 1, 1.0);
  watched(call, "ncclAllReduce", detail, [&](auto comm) {
    nccl::ncclRedOp_t op = nccl::ncclSum;
    TNT_NCCL(*library_, RedOpCreatePreMulSum, &op, scalar.data(), type, nccl::ncclScalarHostImmediate, comm);
    const auto result = (*library_)->AllReduce(call.in, call.out, call.count, type, op, comm, stream());
    TNT_NCCL(*library_, RedOpDestroy, op, comm);
    return check_nccl(result, "ncclAllReduce", *library_, __FILE__, __LINE__);
  });
}

// For the watchdog, the first message represents all of them.
void NcclCommunicator::enqueue_messages(std::span<const Message> messages, std::string_view detail) {
  Call call{.kind = Call::send};
  const auto first = std::find_if(messages.begin(), messages.end(), [](const Message& each) { return each.count > 0; });
  if (first != messages.end()) {
    call.kind = first->in != nullptr ? Call::send : Call::recv;
    call.dtype = first->dtype;
    call.root = first->peer;
    call.count = first->count;
  }
  watched(call, "ncclGroupEnd", detail, [&](auto comm) { return send_and_receive(comm, messages); });
}

// A group that was started is always ended.
template <typename Calls>
nccl::ncclResult_t NcclCommunicator::grouped(Calls&& calls) {
  TNT_NCCL(*library_, GroupStart);
  std::optional<Error> failure;
  try {
    calls();
  } catch (const std::exception& error) {
    failure = to_error(error);
  }
  const nccl::ncclResult_t result = (*library_)->GroupEnd();
  if (failure) throw Error(*failure);
  return check_nccl(result, "ncclGroupEnd", *library_, __FILE__, __LINE__);
}

nccl::ncclResult_t NcclCommunicator::send_and_receive(nccl::ncclComm_t comm, std::span<const Message> messages) {
  return grouped([&] {
    for (const Message& message : messages) {
      if (message.count == 0) continue;
      const nccl::ncclDataType_t type = nccl_type(message.dtype);
      if (message.in != nullptr) {
        TNT_NCCL(*library_, Send, message.in, message.count, type, message.peer, comm, stream());
      } else {
        TNT_NCCL(*library_, Recv, message.out, message.count, type, message.peer, comm, stream());
      }
    }
  });
}

// NCCL launches the reductions of a group together.
void NcclCommunicator::enqueue_uneven(const Collective& call, std::string_view detail) {
  const nccl::ncclDataType_t type = nccl_type(call.dtype);
  const nccl::ncclRedOp_t op = nccl_op(call.op);
  watched(call, "ncclGroupEnd", detail, [&](auto comm) {
    return grouped([&] {
      const auto* block = static_cast<const std::byte*>(call.in);
      for (std::size_t root = 0; root < call.counts.size(); block += call.counts[root] * dtype_size(call.dtype), ++root) {
        if (call.counts[root] == 0) continue;
        TNT_NCCL(*library_, Reduce, block, call.out, call.counts[root], type, op, static_cast<int>(root), comm, stream());
      }
    });
  });
}

// Connects anew: a part that shared the whole's resources (ncclCommSplit) would run in turn with it on the device.
std::unique_ptr<DeviceCommunicator> NcclCommunicator::create_child(int /*color*/, int /*key*/, Communicator* host) {
  if (host == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(device_, *host, options_, library_, job_rank_,
                                            [&](NcclHandle& handle) { init_nccl(handle, *host, options_); });
}

}  // namespace tnt
