#include "comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/abort_job.hpp"
#include "comm/nccl/nccl_init.hpp"

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
  }
  fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(op));
}

// One block of the same size to and from each rank.
std::vector<Message> all_to_all_messages(int ranks, const void* in, void* out, std::size_t count, std::size_t bytes) {
  std::vector<Message> messages;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
    messages.push_back({.in = static_cast<const std::byte*>(in) + offset, .count = count, .peer = peer});
    messages.push_back({.out = static_cast<std::byte*>(out) + offset, .count = count, .peer = peer});
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
      handle_(library_, options.timeout, [this] { throw_if_aborted(); }) {
  try {
    device_.with_current_device([&] { open(handle_); });
  } catch (const Error& error) {
    throw Error(abort_job(host_, error.status(), fmt::format("rank {}: {}", job_rank_, error.what())));
  }
  std::unique_ptr<Communicator> progress_exchange;
  if (host_.size() > 1)
    progress_exchange = host_.split(0, 0, {.timeout = options_.timeout, .detail = "the watchdogs' progress exchange"});
  watchdog_ = std::make_unique<Watchdog>(device_, stream_.get(), host_, std::move(progress_exchange), job_rank_,
                                         options_.timeout, static_cast<WatchedComm&>(*this));
}

// A communicator that was not closed is aborted.
NcclCommunicator::~NcclCommunicator() {
  if (!watchdog_->aborted() && !host_.async_error()) handle_.close();
  watchdog_->stop();
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
    (*watchdog_)(call, detail, [&] {
      if (call.count > 0) handle_.call(what, std::forward<Use>(use));
    });
  } catch (const Error& error) {
    watchdog_->wait_for_cause(error);
    watchdog_->abort_and_throw(error.status(),
                               fmt::format("rank {}: {}: {}", job_rank_, describe_operation(call, 0, detail), error.what()));
  }
}

void NcclCommunicator::enqueue_collective(const Call& call, const void* in, void* out, std::string_view detail) {
  const nccl::ncclDataType_t type = nccl_type(call.dtype);
  const std::size_t count = call.count;
  switch (call.kind) {
    case Call::all_reduce:
      return watched(call, "ncclAllReduce", detail, [&](auto comm) {
        return TNT_NCCL(*library_, AllReduce, in, out, count, type, nccl_op(call.op), comm, stream());
      });
    case Call::reduce_scatter:
      return watched(call, "ncclReduceScatter", detail, [&](auto comm) {
        return TNT_NCCL(*library_, ReduceScatter, in, out, count, type, nccl_op(call.op), comm, stream());
      });
    case Call::all_gather:
      return watched(call, "ncclAllGather", detail,
                     [&](auto comm) { return TNT_NCCL(*library_, AllGather, in, out, count, type, comm, stream()); });
    case Call::broadcast:
      return watched(call, "ncclBroadcast", detail, [&](auto comm) {
        return TNT_NCCL(*library_, Broadcast, in, out, count, type, call.root, comm, stream());
      });
    default: {  // all_to_all
      const auto messages = all_to_all_messages(size(), in, out, count, count * dtype_size(call.dtype));
      return watched(call, "ncclGroupEnd", detail, [&](auto comm) { return send_and_receive(comm, messages, type); });
    }
  }
}

// For the watchdog, the first message represents all of them.
void NcclCommunicator::enqueue_messages(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail) {
  const nccl::ncclDataType_t type = nccl_type(dtype);
  Call call{.kind = Call::send, .dtype = dtype};
  const auto first = std::find_if(messages.begin(), messages.end(), [](const Message& each) { return each.count > 0; });
  if (first != messages.end()) {
    call.kind = first->in != nullptr ? Call::send : Call::recv;
    call.root = first->peer;
    call.count = first->count;
  }
  watched(call, "ncclGroupEnd", detail, [&](auto comm) { return send_and_receive(comm, messages, type); });
}

// A group that was started is always ended.
nccl::ncclResult_t NcclCommunicator::send_and_receive(nccl::ncclComm_t comm, std::span<const Message> messages,
                                                      nccl::ncclDataType_t type) {
  TNT_NCCL(*library_, GroupStart);
  std::optional<Error> failure;
  try {
    for (const Message& message : messages) {
      if (message.count == 0) continue;
      if (message.in != nullptr) {
        TNT_NCCL(*library_, Send, message.in, message.count, type, message.peer, comm, stream());
      } else {
        TNT_NCCL(*library_, Recv, message.out, message.count, type, message.peer, comm, stream());
      }
    }
  } catch (const Error& error) {
    failure = error;
  }
  const nccl::ncclResult_t result = (*library_)->GroupEnd();
  if (failure) throw Error(*failure);
  return check_nccl(result, "ncclGroupEnd", *library_, __FILE__, __LINE__);
}

std::unique_ptr<DeviceCommunicator> NcclCommunicator::create_child(int color, int key, Communicator* host) {
  const bool by_nccl = (*library_)->CommSplit != nullptr;
  const std::scoped_lock lock(mutex_);
  if (host != nullptr) {
    return std::make_unique<NcclCommunicator>(device_, *host, options_, library_, job_rank_, [&](NcclHandle& handle) {
      by_nccl ? handle.split(handle_, color, key) : init_nccl(handle, *host, options_);
    });
  }
  if (!by_nccl) return nullptr;
  try {
    NcclHandle none(library_, options_.timeout, [this] { throw_if_aborted(); });
    none.split(handle_, nccl::no_color, key);
  } catch (const Error& error) {
    watchdog_->abort_and_throw(error.status(), fmt::format("rank {}: {}", job_rank_, error.what()));
  }
  return nullptr;
}

}  // namespace tnt
