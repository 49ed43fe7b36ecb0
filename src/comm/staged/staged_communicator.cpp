#include "comm/staged/staged_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/blocks.hpp"
#include "common/memory.hpp"

namespace tnt {
namespace {

constexpr std::size_t alignment = 256;

std::size_t padded(std::size_t bytes) { return rounded_up(bytes, alignment); }

}  // namespace

void refuse_capture(Device& device, StreamHandle stream) {
  if (!device.capturing(stream)) return;
  fail(TNT_UNSUPPORTED, "collectives through pinned memory cannot be captured in a CUDA graph: use NCCL, or no graph");
}

// The device's thread takes and deletes it.
struct StagedCommunicator::Operation {
  StagedCommunicator* communicator;
  std::vector<StagedBuffer> staged;
  std::string detail;
  std::function<void(const std::vector<StagedBuffer>&, const CallContext&)> work;
};

StagedCommunicator::StagedCommunicator(Device& device, std::unique_ptr<Communicator> host, double timeout)
    : device_(device), host_(std::move(host)), timeout_(timeout), stream_(device, Priority::high) {}

// Waits for enqueued work. The host's deadlines end it if other ranks do not come.
StagedCommunicator::~StagedCommunicator() {
  try {
    device_.synchronize(stream());
  } catch (const Error&) {  // the device has failed; our work has ended
  }
}

std::string StagedCommunicator::version() const { return fmt::format("{} through pinned memory", host_->transport()); }

void StagedCommunicator::throw_if_aborted() {
  if (aborted_) {
    const std::scoped_lock lock(error_mutex_);
    throw Error(*error_);
  }
  if (const auto error = host_->async_error()) throw Error(*error);
}

std::byte* StagedCommunicator::pinned(std::size_t bytes) {
  if (bytes > pinned_bytes_) {
    pinned_bytes_ = std::max(bytes, 2 * pinned_bytes_);
    buffers_.emplace_back(device_, pinned_bytes_);
  }
  return buffers_.empty() ? nullptr : static_cast<std::byte*>(buffers_.back().get());
}

// Operations share the pinned memory; they run one after another on the stream.
void StagedCommunicator::enqueue(std::vector<StagedBuffer> staged, std::string_view detail,
                                 std::function<void(const std::vector<StagedBuffer>&, const CallContext&)> work) {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  check_capture(stream());
  std::size_t bytes = 0;
  for (const StagedBuffer& each : staged) bytes += padded(each.bytes);
  std::byte* memory = pinned(bytes);
  for (StagedBuffer& each : staged) {
    each.pinned = memory;
    if (each.bytes > 0) memory += padded(each.bytes);
    if (each.in != nullptr && each.bytes > 0) device_.copy(each.pinned, each.in, each.bytes, stream());
  }
  auto operation = std::make_unique<Operation>(Operation{this, staged, std::string(detail), std::move(work)});
  device_.launch_host_func(
      [](void* data) {
        const std::unique_ptr<Operation> own(static_cast<Operation*>(data));
        own->communicator->execute(*own);
      },
      operation.get(), stream());
  (void)operation.release();
  for (const StagedBuffer& each : staged) {
    if (each.out != nullptr && each.bytes > 0) device_.copy(each.out, each.pinned, each.bytes, stream());
  }
}

void StagedCommunicator::execute(Operation& operation) noexcept {
  if (aborted_) return;
  try {
    operation.work(operation.staged, {.timeout = timeout_, .detail = operation.detail});
  } catch (const std::exception& error) {
    const std::scoped_lock lock(error_mutex_);
    error_ = to_error(error);
    aborted_ = true;
  }
}

void StagedCommunicator::enqueue_collective(const Collective& call, std::string_view detail) {
  enqueue(buffers_of(call), detail,
          [this, call, counts = std::vector(call.counts.begin(), call.counts.end())](const auto& staged,
                                                                                     const CallContext& context) {
            Collective on_host = call;
            on_host.in = staged.front().pinned;
            on_host.out = staged.back().pinned;
            on_host.counts = counts;
            host_->run(on_host, context);
          });
}

// In place, input and output are one buffer.
std::vector<StagedCommunicator::StagedBuffer> StagedCommunicator::buffers_of(const Collective& call) const {
  const void* const in = call.in;
  void* const out = call.out;
  const std::size_t size = dtype_size(call.dtype);
  const Blocks all = blocks_of(call, static_cast<std::size_t>(this->size()), size);
  const std::size_t block = all.size(static_cast<std::size_t>(rank()));
  const std::size_t blocks = all.total();
  switch (call.kind) {
    case Call::reduce_scatter:
    case Call::reduce_scatter_v: return {{.in = in, .bytes = blocks}, {.out = out, .bytes = block}};
    case Call::all_gather: return {{.in = in, .bytes = block}, {.out = out, .bytes = blocks}};
    case Call::all_to_all: return {{.in = in, .bytes = blocks}, {.out = out, .bytes = blocks}};
    case Call::broadcast: return {{.in = rank() == call.root ? in : nullptr, .out = out, .bytes = block}};
    case Call::reduce: return {{.in = in, .out = rank() == call.root ? out : nullptr, .bytes = block}};
    default: return {{.in = in, .out = out, .bytes = block}};  // all_reduce
  }
}

// Messages of different peers and directions must not wait for each other on the host either.
void StagedCommunicator::enqueue_messages(std::span<const Message> messages, std::string_view detail) {
  std::vector<Message> list;
  std::vector<StagedBuffer> memory;
  for (const Message& message : messages) {
    if (message.count == 0) continue;
    list.push_back(message);
    memory.push_back({.in = message.in, .out = message.out, .bytes = message.count * dtype_size(message.dtype)});
  }
  enqueue(std::move(memory), detail, [this, list = std::move(list)](const auto& staged, const CallContext& context) {
    send_and_receive(list, staged, context);
  });
}

void StagedCommunicator::send_and_receive(const std::vector<Message>& messages, const std::vector<StagedBuffer>& staged,
                                          const CallContext& context) {
  std::vector<std::shared_ptr<Work>> works;
  std::vector<const StagedBuffer*> self_sends;
  std::vector<const StagedBuffer*> self_receives;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool out = message.in != nullptr;
    if (message.peer == rank()) {
      (out ? self_sends : self_receives).push_back(&staged[i]);
      continue;
    }
    const Collective call{
        {.kind = out ? Call::send : Call::recv, .dtype = message.dtype, .root = message.peer, .count = message.count},
        staged[i].pinned,
        staged[i].pinned};
    works.push_back(message_executors_.of(message.peer, out ? Executors::Direction::to : Executors::Direction::from)
                        .start([this, call, &context] { host_->run(call, context); }));
  }
  for (std::size_t i = 0; i < self_sends.size(); ++i) {
    std::memcpy(self_receives[i]->pinned, self_sends[i]->pinned, std::min(self_receives[i]->bytes, self_sends[i]->bytes));
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

std::unique_ptr<DeviceCommunicator> StagedCommunicator::create_child(int /*color*/, int /*key*/, Communicator* host) {
  if (host == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(device_, host->split(0, 0, {.timeout = timeout_}), timeout_);
}

}  // namespace tnt
