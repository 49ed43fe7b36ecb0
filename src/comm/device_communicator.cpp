#include "comm/device_communicator.hpp"

#include <vector>

#include "comm/blocks.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

void check_dtype(tnt_dtype_t dtype) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype));
}

}  // namespace

void DeviceCommunicator::check_peer(const char* call, int peer) const {
  if (peer < 0 || peer >= size()) fail(TNT_INVALID_ARGUMENT, "{} rank {}: there are {} ranks", call, peer, size());
}

void DeviceCommunicator::check(const Collective& call) const {
  if (call.kind == Call::barrier) fail(TNT_INVALID_ARGUMENT, "devices do not support {}", kind_name(call.kind));
  check_dtype(call.dtype);
  if (reduces(call.kind) && !is_op(call.op)) fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(call.op));
  if (call.scale && is_integer(call.dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not scaled", dtype_name(call.dtype));
  if (call.kind == Call::broadcast) check_peer("broadcast from", call.root);
  if (call.kind == Call::reduce) check_peer("reduce to", call.root);
  if (call.kind == Call::gather) check_peer("gather to", call.root);
  if (call.kind == Call::scatter) check_peer("scatter from", call.root);
  if (call.kind == Call::reduce_scatter_v && call.counts.size() != static_cast<std::size_t>(size())) {
    fail(TNT_INVALID_ARGUMENT, "reduce_scatter_v with {} counts: there are {} ranks", call.counts.size(), size());
  }
  const bool is_even = call.kind <= Call::all_to_all || call.kind == Call::reduce;
  const bool reads = call.kind != Call::broadcast || call.root == rank();
  const bool writes = call.kind != Call::reduce || call.root == rank();
  if (is_even && call.count > 0 && ((writes && call.out == nullptr) || (reads && call.in == nullptr))) {
    fail(TNT_INVALID_ARGUMENT, "{} of {} elements: {} is null", kind_name(call.kind), call.count,
         reads && call.in == nullptr ? "the input" : "the output");
  }
}

void DeviceCommunicator::exchange(std::span<const Message> messages, std::string_view detail) {
  std::ptrdiff_t to_itself = 0;
  for (const Message& message : messages) {
    check_dtype(message.dtype);
    check_peer(message.in != nullptr ? "send to" : "recv from", message.peer);
    if (message.count == 0) continue;
    if ((message.in == nullptr) == (message.out == nullptr)) {
      fail(TNT_INVALID_ARGUMENT, "a message with rank {} needs an input or an output, and one of them only", message.peer);
    }
    if (message.peer == rank()) to_itself += message.in != nullptr ? 1 : -1;
  }
  if (to_itself != 0) fail(TNT_INVALID_ARGUMENT, "messages from rank {} to itself need both ends in one call", rank());
  enqueue_messages(messages, detail);
}

namespace {

// What a rank sends and receives in a collective that is made of messages. Its own block is left where it is in place.
std::vector<Message> messages_of(const Collective& call, std::size_t ranks, std::size_t self) {
  const std::size_t size = dtype_size(call.dtype);
  const auto root = static_cast<std::size_t>(call.root);
  const Blocks to = blocks_of(call, ranks);
  const Blocks from = call.kind == Call::all_to_all_v ? Blocks(call.recv_counts) : to;
  const bool has_one_in = call.kind == Call::gather || call.kind == Call::all_gather_v;
  const bool has_one_out = call.kind == Call::scatter;
  std::vector<Message> messages;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const bool sends = call.kind == Call::gather ? peer == root : call.kind != Call::scatter || self == root;
    const bool receives = call.kind == Call::scatter ? peer == root : call.kind != Call::gather || self == root;
    Message sent{.count = to.size(has_one_in ? self : peer), .dtype = call.dtype, .peer = static_cast<int>(peer)};
    Message received{.count = from.size(has_one_out ? self : peer), .dtype = call.dtype, .peer = static_cast<int>(peer)};
    if (sends) sent.in = static_cast<const std::byte*>(call.in) + (has_one_in ? 0 : to.begin(peer) * size);
    if (receives) received.out = static_cast<std::byte*>(call.out) + (has_one_out ? 0 : from.begin(peer) * size);
    if (peer == self && sent.in == received.out) continue;
    if (sends) messages.push_back(sent);
    if (receives) messages.push_back(received);
  }
  return messages;
}

}  // namespace

void DeviceCommunicator::run(const Collective& call, std::string_view detail) {
  check(call);
  switch (call.kind) {
    case Call::send:
    case Call::recv: {
      const Message message = message_of(call);
      return exchange({&message, 1}, detail);
    }
    case Call::gather:
    case Call::scatter:
    case Call::all_gather_v:
    case Call::all_to_all_v: {
      const auto messages = messages_of(call, static_cast<std::size_t>(size()), static_cast<std::size_t>(rank()));
      return exchange(messages, detail.empty() ? kind_name(call.kind) : detail);
    }
    default: enqueue_collective(call, detail.empty() && call.kind == Call::reduce_scatter_v ? kind_name(call.kind) : detail);
  }
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::split(int color, int key, Communicator* host) {
  throw_if_aborted();
  if ((color >= 0) != (host != nullptr)) {
    fail(TNT_INVALID_ARGUMENT, "split with colour {} {} a host communicator", color, host == nullptr ? "without" : "with");
  }
  return create_child(color, key, host);
}

}  // namespace tnt
