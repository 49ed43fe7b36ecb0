// The fake NCCL's operations as work on simulated streams: each rank's waits until all ranks have reached it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "nccl/fake_state.hpp"
#include "support/half_reference.hpp"
#include "support/simulated_stream.h"

namespace fake {
namespace {

using tnt::testing::HalfFormat;

template <typename T>
T combined(T a, T b, int op) {
  switch (op) {
    case nccl::ncclProd: return static_cast<T>(a * b);
    case nccl::ncclMin: return std::min(a, b);
    case nccl::ncclMax: return std::max(a, b);
    default: return static_cast<T>(a + b);
  }
}

// One element reduced over all ranks, in T, as NCCL's ring does: it begins at rank `first`, and each rank rounds its partial
// sum to the type of the data. load(rank) returns the rank's value.
template <typename T, typename Load, typename Round>
T reduce_element(std::size_t ranks, std::size_t first, int op, Load&& load, Round&& round) {
  T value = load(first);
  for (std::size_t hop = 1; hop < ranks; ++hop) value = round(combined<T>(value, load((first + hop) % ranks), op));
  return op == nccl::ncclAvg ? static_cast<T>(value / static_cast<T>(ranks)) : value;
}

// Each rank of the ring ends with one part of the sum, and the next rank began it.
std::size_t first_rank(const PendingCollective& pending, std::size_t element, std::size_t count) {
  const std::size_t ranks = pending.inputs.size();
  return (element * ranks / count + 1) % ranks;
}

template <typename T>
void reduce_as(PendingCollective& pending, std::size_t count) {
  auto* out = reinterpret_cast<T*>(pending.result.data());
  for (std::size_t i = 0; i < count; ++i) {
    const auto load = [&](std::size_t rank) {
      const T value = static_cast<const T*>(pending.inputs[rank])[i];
      return pending.scales[rank] == 1.0 ? value : static_cast<T>(pending.scales[rank] * static_cast<double>(value));
    };
    out[i] = reduce_element<T>(pending.inputs.size(), first_rank(pending, i, count), pending.signature.op_or_root, load,
                               [](T value) { return value; });
  }
}

void reduce_half(PendingCollective& pending, std::size_t count, const HalfFormat& format) {
  auto* out = reinterpret_cast<std::uint16_t*>(pending.result.data());
  for (std::size_t i = 0; i < count; ++i) {
    const auto load = [&](std::size_t rank) {
      return pending.scales[rank] * format.decode(static_cast<const std::uint16_t*>(pending.inputs[rank])[i]);
    };
    const auto round = [&](double value) { return format.decode(format.encode(value)); };
    out[i] = format.encode(reduce_element<double>(pending.inputs.size(), first_rank(pending, i, count),
                                                  pending.signature.op_or_root, load, round));
  }
}

void reduce(PendingCollective& pending, std::size_t count) {
  pending.result.resize(count * bytes_of(pending.signature.type));
  switch (pending.signature.type) {
    case nccl::ncclInt8: return reduce_as<std::int8_t>(pending, count);
    case nccl::ncclUint8: return reduce_as<std::uint8_t>(pending, count);
    case nccl::ncclInt32: return reduce_as<std::int32_t>(pending, count);
    case nccl::ncclInt64: return reduce_as<std::int64_t>(pending, count);
    case nccl::ncclUint32: return reduce_as<std::uint32_t>(pending, count);
    case nccl::ncclUint64: return reduce_as<std::uint64_t>(pending, count);
    case nccl::ncclFloat32: return reduce_as<float>(pending, count);
    case nccl::ncclFloat64: return reduce_as<double>(pending, count);
    case nccl::ncclFloat16: return reduce_half(pending, count, HalfFormat::float16());
    case nccl::ncclBfloat16: return reduce_half(pending, count, HalfFormat::bfloat16());
  }
}

void gather(PendingCollective& pending, std::size_t bytes) {
  pending.result.resize(pending.inputs.size() * bytes);
  if (bytes == 0) return;  // the inputs may be NULL then
  for (std::size_t rank = 0; rank < pending.inputs.size(); ++rank) {
    std::memcpy(pending.result.data() + rank * bytes, pending.inputs[rank], bytes);
  }
}

// The beginning of this rank's part of the result.
std::size_t part_of(const PendingCollective& pending, int rank) {
  if (pending.signature.function != "ncclReduceScatter") return 0;
  return static_cast<std::size_t>(rank) * pending.signature.count * bytes_of(pending.signature.type);
}

// The work of one operation on one rank's stream; it runs once, or at each replay of a graph.
struct Work {
  Comm* comm;
  bool never = false;  // set by a test
  bool on_the_way = true;
  bool persistent = false;                                  // in a graph
  std::uint64_t number_there = 0;                           // on a device with room for one; 0: it needs no room
  explicit Work(Comm& of) : comm(&of) { ++of.on_the_way; }  // called with the mutex held
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  virtual ~Work() = default;
  [[nodiscard]] virtual bool go_on() = 0;  // called with the mutex held
  // On a device with room for one (co_resident), if the work was enqueued there: in a capture it was not.
  void queue() {
    if (State::get().setting("co_resident", -1) == 0) return;
    FullDevice& device = State::get().full_devices[comm->device];
    number_there = ++device.enqueued;
    device.to_begin.insert(number_there);
  }
  [[nodiscard]] bool has_room() {
    if (number_there == 0) return true;
    FullDevice& device = State::get().full_devices[comm->device];
    if (device.running == this) return true;
    if (device.running != nullptr || *device.to_begin.begin() != number_there) return false;
    device.to_begin.erase(number_there);
    device.running = this;
    return true;
  }
  void leave() {
    if (number_there == 0) return;
    FullDevice& device = State::get().full_devices[comm->device];
    device.to_begin.erase(number_there);
    if (device.running == this) device.running = nullptr;
    number_there = 0;
  }
  void arrive() {
    if (!std::exchange(on_the_way, false)) return;
    --comm->on_the_way;
    State::get().changed.notify_all();
  }
};

// A shared Work as the simulated streams need it.
int try_run(void* data) {
  const std::scoped_lock lock(State::get().mutex);
  Work& work = **static_cast<std::shared_ptr<Work>*>(data);
  const bool over = work.comm->ended() || (work.has_room() && !work.never && !work.comm->group->dead() && work.go_on());
  if (over) work.arrive();
  if (over) work.leave();
  return over ? 1 : 0;
}

void destroy(void* data) {
  auto* work = static_cast<std::shared_ptr<Work>*>(data);
  {
    const std::scoped_lock lock(State::get().mutex);
    if ((*work)->persistent) --(*work)->comm->persistent;
    (*work)->leave();
    (*work)->arrive();
    State::get().changed.notify_all();
  }
  delete work;
}

struct Collective final : Work {
  Signature signature;
  Buffers buffers;
  std::uint64_t number = 0;  // 0: the device has not reached it
  Collective(Comm& of, Signature its, const Buffers& with) : Work(of), signature(std::move(its)), buffers(with) {}

  bool go_on() override {
    if (number == 0) come();
    PendingCollective& pending = comm->group->pending_collectives.at(number);
    if (pending.mixed || pending.arrived < static_cast<int>(pending.inputs.size())) return false;
    if (buffers.out_bytes > 0) {  // else out may be NULL: of a rank that is not the root
      std::memcpy(buffers.out, pending.result.data() + part_of(pending, comm->rank), buffers.out_bytes);
    }
    if (++pending.left == pending.arrived) comm->group->pending_collectives.erase(number);
    number = 0;
    return true;
  }

  void come() {
    number = ++comm->device_collectives;
    auto [place, first] = comm->group->pending_collectives.try_emplace(number);
    PendingCollective& pending = place->second;
    if (first) {
      pending.signature = signature;
      pending.in_window = comm->in_window(buffers.in);
      pending.inputs.resize(comm->group->members.size());
      pending.scales.resize(comm->group->members.size(), 1.0);
    }
    pending.mixed = pending.mixed || pending.signature != signature;
    if (pending.in_window != comm->in_window(buffers.in)) {
      State::get().misused("a collective on memory that is in a window on some ranks only");
    }
    pending.inputs[static_cast<std::size_t>(comm->rank)] = buffers.in;
    pending.scales[static_cast<std::size_t>(comm->rank)] = buffers.scale;
    if (++pending.arrived == static_cast<int>(pending.inputs.size()) && !pending.mixed) compute(pending);
  }
};

struct Exchange final : Work {
  std::vector<Transfer> list;
  std::vector<std::shared_ptr<PendingMessage>> messages;
  Exchange(Comm& of, std::vector<Transfer> its) : Work(of), list(std::move(its)) {}

  bool go_on() override {
    if (messages.empty()) {
      for (const Transfer& transfer : list) messages.push_back(post(transfer));
    }
    const bool over = std::all_of(messages.begin(), messages.end(), [](const auto& message) { return message->copied; });
    if (over) messages.clear();
    return over;
  }

  // The n-th send to a rank matches the n-th receive there.
  std::shared_ptr<PendingMessage> post(const Transfer& transfer) const {
    Group& group = *comm->group;
    const std::pair<int, int> way =
        transfer.sends ? std::pair(comm->rank, transfer.peer) : std::pair(transfer.peer, comm->rank);
    auto& others = (transfer.sends ? group.wanted : group.sent)[way];
    if (others.empty()) {
      auto message = std::make_shared<PendingMessage>();
      message->from = transfer.in;
      message->to = transfer.out;
      message->bytes = transfer.bytes;
      (transfer.sends ? group.sent : group.wanted)[way].push_back(message);
      return message;
    }
    auto message = others.front();
    others.pop_front();
    if (message->bytes != transfer.bytes) {
      for (Comm* member : group.members) {
        fail_later(*member, nccl::ncclInvalidUsage, "a message of another size than the one that waits for it");
      }
      return message;
    }
    if (message->bytes > 0) {
      std::memcpy(transfer.sends ? message->to : transfer.out, transfer.sends ? transfer.in : message->from, message->bytes);
    }
    message->copied = true;
    return message;
  }
};

tnt_simulated_enqueue_fn simulated_enqueue() {
  static const auto found = simulated<tnt_simulated_enqueue_fn>("tnt_simulated_enqueue");
  return found;
}

bool is_captured(nccl::ncclStream_t stream) {
  static const auto found = simulated<tnt_simulated_capturing_fn>("tnt_simulated_capturing");
  return found(stream) == 1;
}

void count_in_graph(Work& work) {
  const std::scoped_lock lock(State::get().mutex);
  work.persistent = true;
  ++work.comm->persistent;
  work.arrive();
}

void count_on_device(Work& work) {
  const std::scoped_lock lock(State::get().mutex);
  work.queue();
}

Enqueue on_stream(std::unique_ptr<Work> work, const std::vector<Buffers>& buffers, nccl::ncclStream_t stream,
                  const std::string& what) {
  return [work = std::shared_ptr<Work>(std::move(work)), buffers, stream, what] {
    std::vector<const void*> reads;
    std::vector<std::size_t> read_bytes;
    std::vector<void*> writes;
    std::vector<std::size_t> write_bytes;
    for (const Buffers& each : buffers) {
      if (each.in_bytes > 0) reads.push_back(each.in), read_bytes.push_back(each.in_bytes);
      if (each.out_bytes > 0) writes.push_back(each.out), write_bytes.push_back(each.out_bytes);
    }
    is_captured(stream) ? count_in_graph(*work) : count_on_device(*work);
    simulated_enqueue()(stream, reads.data(), read_bytes.data(), reads.size(), writes.data(), write_bytes.data(), writes.size(),
                        try_run, destroy, new std::shared_ptr<Work>(work), what.c_str());
  };
}

// The n-th calls of all ranks must be the same.
void compare_calls(Comm& comm, const Signature& signature) {
  const auto [place, first] = comm.group->calls.try_emplace(++comm.collectives, signature, comm.rank);
  const auto& [expected, first_rank] = place->second;
  if (first || expected == signature || State::get().setting("mismatch_hangs", comm.rank) != 0) return;
  const std::string words = "rank " + std::to_string(comm.rank) + " called " + signature.text() + " while rank " +
                            std::to_string(first_rank) + " called " + expected.text();
  for (Comm* member : comm.group->members) fail_later(*member, nccl::ncclInvalidUsage, words);
}

// A test's settings for the next operation.
bool never_ends(Comm& comm) {
  const State& state = State::get();
  const auto wished = [&](const char* key) { return state.setting(key, comm.rank) == static_cast<long>(comm.operations); };
  if (wished("remote_error_at")) fail_later(comm, nccl::ncclRemoteError, "connection closed by the fake's peer");
  if (wished("system_error_at")) fail_later(comm, nccl::ncclSystemError, "the fake's network is down");
  return wished("never_ends_at") || wished("remote_error_at") || wished("system_error_at");
}

}  // namespace

void compute(PendingCollective& pending) {
  const Signature& signature = pending.signature;
  const std::size_t bytes = signature.count * bytes_of(signature.type);
  if (signature.function == "ncclAllReduce" || signature.function == "ncclReduce") return reduce(pending, signature.count);
  if (signature.function == "ncclReduceScatter") return reduce(pending, signature.count * pending.inputs.size());
  if (signature.function == "ncclAllGather") return gather(pending, bytes);
  const auto* root = static_cast<const char*>(pending.inputs[static_cast<std::size_t>(signature.op_or_root)]);
  pending.result.assign(root, root + bytes);
}

Enqueue collective(Comm& comm, const Signature& signature, const Buffers& buffers, nccl::ncclStream_t stream) {
  compare_calls(comm, signature);
  auto work = std::make_unique<Collective>(comm, signature, buffers);
  work->never = never_ends(comm);
  return on_stream(std::move(work), {buffers}, stream, signature.text());
}

Enqueue transfers(Comm& comm, std::vector<Transfer> list, nccl::ncclStream_t stream) {
  std::vector<Buffers> buffers;
  for (const Transfer& transfer : list) {
    buffers.push_back(transfer.sends ? Buffers{.in = transfer.in, .in_bytes = transfer.bytes}
                                     : Buffers{.out = transfer.out, .out_bytes = transfer.bytes});
  }
  auto work = std::make_unique<Exchange>(comm, std::move(list));
  work->never = never_ends(comm);
  return on_stream(std::move(work), buffers, stream, "a group of messages");
}

}  // namespace fake
