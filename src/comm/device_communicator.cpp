#include "comm/device_communicator.hpp"

#include <vector>

#include "base/error.hpp"
#include "comm/blocks.hpp"

namespace tnt {
namespace {

bool is_supported(Call::Kind kind) {
  switch (kind) {
    case Call::all_reduce:
    case Call::reduce_scatter:
    case Call::all_gather:
    case Call::broadcast:
    case Call::all_to_all:
    case Call::reduce: return true;
    default: return false;
  }
}

void check_dtype(tnt_dtype_t dtype) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype));
}

}  // namespace

void DeviceCommunicator::check_peer(const char* call, int peer) const {
  if (peer < 0 || peer >= size()) fail(TNT_INVALID_ARGUMENT, "{} rank {}: there are {} ranks", call, peer, size());
}

void DeviceCommunicator::collective(const Call& call, const void* in, void* out, std::string_view detail) {
  if (!is_supported(call.kind)) fail(TNT_INVALID_ARGUMENT, "devices do not support {}", kind_name(call.kind));
  check_dtype(call.dtype);
  if (reduces(call.kind) && !is_op(call.op)) fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(call.op));
  if (call.kind == Call::broadcast) check_peer("broadcast from", call.root);
  if (call.kind == Call::reduce) check_peer("reduce to", call.root);
  const bool reads = call.kind != Call::broadcast || call.root == rank();
  const bool writes = call.kind != Call::reduce || call.root == rank();
  if (call.count > 0 && ((writes && out == nullptr) || (reads && in == nullptr))) {
    fail(TNT_INVALID_ARGUMENT, "{} of {} elements: {} is null", kind_name(call.kind), call.count,
         reads && in == nullptr ? "the input" : "the output");
  }
  enqueue_collective(call, in, out, detail);
}

void DeviceCommunicator::all_reduce_scaled(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, double scale,
                                           std::string_view detail) {
  check_dtype(dtype);
  if (is_integer(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not scaled", dtype_name(dtype));
  if (count > 0 && (in == nullptr || out == nullptr))
    fail(TNT_INVALID_ARGUMENT, "all_reduce of {} elements: a buffer is null", count);
  enqueue_scaled({.kind = Call::all_reduce, .dtype = dtype, .op = TNT_SUM, .count = count}, in, out, scale, detail);
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

// The messages of one call on a rank.
class MessageList {
 public:
  MessageList(int self, tnt_dtype_t dtype) : self_(static_cast<std::size_t>(self)), dtype_(dtype), size_(dtype_size(dtype)) {}

  [[nodiscard]] const std::byte* at(const void* buffer, std::size_t element) const {
    return static_cast<const std::byte*>(buffer) + element * size_;
  }
  [[nodiscard]] std::byte* at(void* buffer, std::size_t element) const {
    return static_cast<std::byte*>(buffer) + element * size_;
  }
  void send(const void* in, std::size_t count, std::size_t to) {
    list_.push_back({.in = in, .count = count, .dtype = dtype_, .peer = static_cast<int>(to)});
  }
  void receive(void* out, std::size_t count, std::size_t from) {
    list_.push_back({.out = out, .count = count, .dtype = dtype_, .peer = static_cast<int>(from)});
  }
  void keep(const void* in, void* out, std::size_t count) {
    if (in == out) return;
    send(in, count, self_);
    receive(out, count, self_);
  }
  [[nodiscard]] std::span<const Message> list() const { return list_; }

 private:
  std::size_t self_;
  tnt_dtype_t dtype_;
  std::size_t size_;
  std::vector<Message> list_;
};

}  // namespace

void DeviceCommunicator::gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                                std::string_view detail) {
  check_dtype(dtype);
  check_peer("gather to", root);
  MessageList messages(rank(), dtype);
  const auto to = static_cast<std::size_t>(root);
  if (rank() != root) messages.send(in, count, to);
  for (std::size_t from = 0; from < static_cast<std::size_t>(size()) && rank() == root; ++from) {
    std::byte* const block = messages.at(out, from * count);
    from == to ? messages.keep(in, block, count) : messages.receive(block, count, from);
  }
  exchange(messages.list(), detail);
}

void DeviceCommunicator::scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                                 std::string_view detail) {
  check_dtype(dtype);
  check_peer("scatter from", root);
  MessageList messages(rank(), dtype);
  const auto from = static_cast<std::size_t>(root);
  if (rank() != root) messages.receive(out, count, from);
  for (std::size_t to = 0; to < static_cast<std::size_t>(size()) && rank() == root; ++to) {
    const std::byte* const block = messages.at(in, to * count);
    to == from ? messages.keep(block, out, count) : messages.send(block, count, to);
  }
  exchange(messages.list(), detail);
}

void DeviceCommunicator::all_gather_v(const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype,
                                      std::string_view detail) {
  check_dtype(dtype);
  const Blocks blocks(counts);
  const auto self = static_cast<std::size_t>(rank());
  MessageList messages(rank(), dtype);
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    std::byte* const block = messages.at(out, blocks.begin(peer));
    if (peer == self) {
      messages.keep(in, block, counts[self]);
    } else {
      messages.send(in, counts[self], peer);
      messages.receive(block, counts[peer], peer);
    }
  }
  exchange(messages.list(), detail);
}

void DeviceCommunicator::reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts, tnt_dtype_t dtype,
                                          tnt_op_t op, std::string_view detail) {
  check_dtype(dtype);
  if (!is_op(op)) fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(op));
  if (counts.size() != static_cast<std::size_t>(size())) {
    fail(TNT_INVALID_ARGUMENT, "reduce_scatter_v with {} counts: there are {} ranks", counts.size(), size());
  }
  enqueue_reduce_scatter_v(in, out, counts, dtype, op, detail);
}

void DeviceCommunicator::all_to_all_v(const void* in, void* out, std::span<const std::size_t> send_counts,
                                      std::span<const std::size_t> recv_counts, tnt_dtype_t dtype, std::string_view detail) {
  check_dtype(dtype);
  const Blocks to(send_counts);
  const Blocks from(recv_counts);
  MessageList messages(rank(), dtype);
  for (std::size_t peer = 0; peer < send_counts.size(); ++peer) {
    messages.send(messages.at(in, to.begin(peer)), send_counts[peer], peer);
    messages.receive(messages.at(out, from.begin(peer)), recv_counts[peer], peer);
  }
  exchange(messages.list(), detail);
}

std::unique_ptr<DeviceCommunicator> DeviceCommunicator::split(int color, int key, Communicator* host) {
  throw_if_aborted();
  if ((color >= 0) != (host != nullptr)) {
    fail(TNT_INVALID_ARGUMENT, "split with colour {} {} a host communicator", color, host == nullptr ? "without" : "with");
  }
  return create_child(color, key, host);
}

}  // namespace tnt
