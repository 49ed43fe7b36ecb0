#include "comm/device_communicator.hpp"

#include "base/error.hpp"

namespace tnt {
namespace {

bool reduces(const Call& call) { return call.kind == Call::all_reduce || call.kind == Call::reduce_scatter; }

void check_dtype(tnt_dtype_t dtype) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype));
}

}  // namespace

void DeviceCommunicator::check_peer(const char* call, int peer) const {
  if (peer < 0 || peer >= size()) fail(TNT_INVALID_ARGUMENT, "{} rank {}: there are {} ranks", call, peer, size());
}

void DeviceCommunicator::collective(const Call& call, const void* in, void* out, std::string_view detail) {
  if (call.kind >= Call::barrier) fail(TNT_INVALID_ARGUMENT, "devices do not support {}", kind_name(call.kind));
  check_dtype(call.dtype);
  if (reduces(call) && !is_op(call.op)) fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(call.op));
  if (call.kind == Call::broadcast) check_peer("broadcast from", call.root);
  const bool reads = call.kind != Call::broadcast || call.root == rank();
  if (call.count > 0 && (out == nullptr || (reads && in == nullptr))) {
    fail(TNT_INVALID_ARGUMENT, "{} of {} elements: {} is null", kind_name(call.kind), call.count,
         reads && in == nullptr ? "the input" : "the output");
  }
  enqueue_collective(call, in, out, detail);
}

void DeviceCommunicator::exchange(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail) {
  check_dtype(dtype);
  std::ptrdiff_t to_itself = 0;
  for (const Message& message : messages) {
    check_peer(message.in != nullptr ? "send to" : "recv from", message.peer);
    if (message.count == 0) continue;
    if ((message.in == nullptr) == (message.out == nullptr)) {
      fail(TNT_INVALID_ARGUMENT, "a message with rank {} needs an input or an output, and one of them only", message.peer);
    }
    if (message.peer == rank()) to_itself += message.in != nullptr ? 1 : -1;
  }
  if (to_itself != 0) fail(TNT_INVALID_ARGUMENT, "messages from rank {} to itself need both ends in one call", rank());
  enqueue_messages(messages, dtype, detail);
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::split(int color, int key, Communicator* host) {
  throw_if_aborted();
  if ((color >= 0) != (host != nullptr)) {
    fail(TNT_INVALID_ARGUMENT, "split with colour {} {} a host communicator", color, host == nullptr ? "without" : "with");
  }
  return create_child(color, key, host);
}

}  // namespace tnt
