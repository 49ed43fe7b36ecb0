#include "comm/staged/staged_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/pack.hpp"

namespace tnt {
namespace {

constexpr std::size_t alignment = 256;

std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void check(tnt_dtype_t dtype, tnt_op_t op = TNT_SUM) {
  if (!is_dtype(dtype)) fail(TNT_INVALID_ARGUMENT, "{} is not a dtype", static_cast<int>(dtype));
  if (!is_op(op)) fail(TNT_INVALID_ARGUMENT, "{} is not an operation", static_cast<int>(op));
}

void check(const char* call, const void* in, const void* out, std::size_t count) {
  if (count == 0 || (in != nullptr && out != nullptr)) return;
  fail(TNT_INVALID_ARGUMENT, "{} of {} elements: {} is null", call, count, in == nullptr ? "the input" : "the output");
}

}  // namespace

// Taken by the device's thread, which deletes it.
struct StagedCommunicator::Operation {
  StagedCommunicator* communicator;
  std::vector<Staged> staged;
  std::string detail;
  std::function<void(const std::vector<Staged>&, const CallContext&)> work;
};

StagedCommunicator::StagedCommunicator(Device& device, std::unique_ptr<Communicator> host, double timeout)
    : device_(device), host_(std::move(host)), timeout_(timeout), stream_(device, Priority::high) {}

// What is on the way ends: by the host's deadlines, if others do not come.
StagedCommunicator::~StagedCommunicator() {
  try {
    device_.synchronize(stream());
  } catch (const Error&) {  // the device has failed: nothing of ours runs any more
  }
}

std::string StagedCommunicator::version() const { return fmt::format("{} through pinned memory", host_->transport()); }

void StagedCommunicator::throw_if_ended() {
  if (ended_) {
    const std::scoped_lock lock(error_mutex_);
    throw Error(*error_);
  }
  if (const auto error = host_->ending()) throw Error(*error);
}

std::byte* StagedCommunicator::pinned(std::size_t bytes) {
  if (bytes > pinned_bytes_) {
    pinned_bytes_ = std::max(bytes, 2 * pinned_bytes_);
    buffers_.emplace_back(device_, pinned_bytes_);
  }
  return buffers_.empty() ? nullptr : static_cast<std::byte*>(buffers_.back().get());
}

// Operations share the pinned memory: they follow each other on the stream.
void StagedCommunicator::enqueue(std::vector<Staged> staged, std::string_view detail,
                                 std::function<void(const std::vector<Staged>&, const CallContext&)> work) {
  const std::scoped_lock lock(mutex_);
  throw_if_ended();
  if (device_.capturing(stream())) {
    fail(TNT_UNSUPPORTED, "collectives through pinned memory cannot be captured in a CUDA graph: use NCCL, or no graph");
  }
  std::size_t bytes = 0;
  for (const Staged& each : staged) bytes += padded(each.bytes);
  std::byte* memory = pinned(bytes);
  for (Staged& each : staged) {
    each.pinned = memory;
    if (each.bytes > 0) memory += padded(each.bytes);
    if (each.in != nullptr && each.bytes > 0) device_.copy(each.pinned, each.in, each.bytes, stream());
  }
  auto operation = std::make_unique<Operation>(Operation{this, staged, std::string(detail), std::move(work)});
  device_.call(
      [](void* data) {
        const std::unique_ptr<Operation> own(static_cast<Operation*>(data));
        own->communicator->run(*own);
      },
      operation.get(), stream());
  (void)operation.release();
  for (const Staged& each : staged) {
    if (each.out != nullptr && each.bytes > 0) device_.copy(each.out, each.pinned, each.bytes, stream());
  }
}

void StagedCommunicator::run(Operation& operation) noexcept {
  if (ended_) return;
  try {
    operation.work(operation.staged, {.timeout = timeout_, .detail = operation.detail});
  } catch (const Error& error) {
    const std::scoped_lock lock(error_mutex_);
    error_ = error;
    ended_ = true;
  }
}

void StagedCommunicator::all_reduce(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                    std::string_view detail) {
  check("all_reduce", in, out, count);
  check(dtype, op);
  enqueue({{.in = in, .out = out, .bytes = count * dtype_size(dtype)}}, detail,
          [this, count, dtype, op](const auto& staged, const CallContext& context) {
            const Piece piece{.in = staged[0].pinned, .out = staged[0].pinned, .count = count};
            host_->all_reduce(Run({&piece, 1}, dtype), op, context);
          });
}

void StagedCommunicator::reduce_scatter(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                        std::string_view detail) {
  check("reduce_scatter", in, out, count);
  check(dtype, op);
  const std::size_t bytes = count * dtype_size(dtype);
  enqueue({{.in = in, .bytes = bytes * static_cast<std::size_t>(size())}, {.out = out, .bytes = bytes}}, detail,
          [this, count, dtype, op](const auto& staged, const CallContext& context) {
            host_->reduce_scatter(staged[0].pinned, staged[1].pinned, count, dtype, op, context);
          });
}

void StagedCommunicator::all_gather(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, std::string_view detail) {
  check("all_gather", in, out, count);
  check(dtype);
  const std::size_t bytes = count * dtype_size(dtype);
  enqueue({{.in = in, .bytes = bytes}, {.out = out, .bytes = bytes * static_cast<std::size_t>(size())}}, detail,
          [this, count, dtype](const auto& staged, const CallContext& context) {
            host_->all_gather(staged[0].pinned, staged[1].pinned, count, dtype, context);
          });
}

void StagedCommunicator::broadcast(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, int root,
                                   std::string_view detail) {
  check_peer("broadcast from", root);
  const bool is_root = rank() == root;
  check("broadcast", is_root ? in : out, out, count);
  check(dtype);
  enqueue({{.in = is_root ? in : nullptr, .out = out, .bytes = count * dtype_size(dtype)}}, detail,
          [this, count, dtype, root](const auto& staged, const CallContext& context) {
            host_->broadcast(staged[0].pinned, staged[0].pinned, count, dtype, root, context);
          });
}

void StagedCommunicator::all_to_all(const void* in, void* out, std::size_t count, tnt_dtype_t dtype, std::string_view detail) {
  check("all_to_all", in, out, count);
  check(dtype);
  const std::size_t bytes = count * dtype_size(dtype) * static_cast<std::size_t>(size());
  enqueue({{.in = in, .bytes = bytes}, {.out = out, .bytes = bytes}}, detail,
          [this, count, dtype](const auto& staged, const CallContext& context) {
            host_->all_to_all(staged[0].pinned, staged[1].pinned, count, dtype, context);
          });
}

// Messages of different peers and directions do not wait for each other on the host either.
void StagedCommunicator::exchange(std::span<const Message> messages, tnt_dtype_t dtype, std::string_view detail) {
  check(dtype);
  std::vector<Message> list;
  std::vector<Staged> memory;
  std::ptrdiff_t to_itself = 0;
  for (const Message& message : messages) {
    check_peer(message.in != nullptr ? "send to" : "recv from", message.peer);
    if (message.count == 0) continue;
    if ((message.in == nullptr) == (message.out == nullptr)) {
      fail(TNT_INVALID_ARGUMENT, "a message with rank {} needs an input or an output, and one of them only", message.peer);
    }
    if (message.peer == rank()) to_itself += message.in != nullptr ? 1 : -1;
    list.push_back(message);
    memory.push_back({.in = message.in, .out = message.out, .bytes = message.count * dtype_size(dtype)});
  }
  if (to_itself != 0) fail(TNT_INVALID_ARGUMENT, "messages from rank {} to itself need both ends in one call", rank());
  enqueue(std::move(memory), detail, [this, list = std::move(list), dtype](const auto& staged, const CallContext& context) {
    send_and_receive(list, staged, dtype, context);
  });
}

void StagedCommunicator::send_and_receive(const std::vector<Message>& messages, const std::vector<Staged>& staged,
                                          tnt_dtype_t dtype, const CallContext& context) {
  std::vector<std::shared_ptr<Work>> works;
  std::vector<const Staged*> to_itself;
  std::vector<const Staged*> from_itself;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool out = message.in != nullptr;
    if (message.peer == rank()) {
      (out ? to_itself : from_itself).push_back(&staged[i]);
      continue;
    }
    works.push_back(messages_.of(message.peer, out ? Executors::Direction::to : Executors::Direction::from)
                        .start([=, this, &staged, &context] {
                          out ? host_->send(staged[i].pinned, message.count, dtype, message.peer, context)
                              : host_->recv(staged[i].pinned, message.count, dtype, message.peer, context);
                        }));
  }
  for (std::size_t i = 0; i < to_itself.size(); ++i) {
    std::memcpy(from_itself[i]->pinned, to_itself[i]->pinned, std::min(from_itself[i]->bytes, to_itself[i]->bytes));
  }
  std::optional<Error> failure;
  for (const auto& work : works) {
    try {
      (void)work->wait(-1);
    } catch (const Error& error) {
      failure = error;
    }
  }
  if (failure) throw Error(*failure);
}

void StagedCommunicator::check_peer(const char* call, int peer) const {
  if (peer < 0 || peer >= size()) fail(TNT_INVALID_ARGUMENT, "{} rank {}: there are {} ranks", call, peer, size());
}

std::unique_ptr<DeviceCommunicator> StagedCommunicator::split(int color, int /*key*/, Communicator* host) {
  throw_if_ended();
  if ((color >= 0) != (host != nullptr)) {
    fail(TNT_INVALID_ARGUMENT, "split with colour {} {} a host communicator", color, host == nullptr ? "without" : "with");
  }
  if (host == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(device_, host->split(0, 0, {.timeout = timeout_}), timeout_);
}

}  // namespace tnt
