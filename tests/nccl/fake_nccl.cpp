// A library with the functions of NCCL that we use. Ranks are threads of one process, buffers are memory of the simulated
// device, operations are work on its streams. It guarantees no more than NCCL does, reports callers that rely on more, and
// imitates failures of networks and other ranks when a test asks for them (fake_nccl.h).
#include <algorithm>
#include <cstring>
#include <optional>

#include "nccl/fake_state.hpp"
#include "support/half_reference.hpp"

using namespace fake;

namespace {

// A call in a group: a collective, or a message.
struct Grouped {
  Comm* comm;
  nccl::ncclStream_t stream;
  std::optional<Transfer> transfer = {};
  Signature signature = {};
  Buffers buffers = {};
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> grouped;
thread_local std::string last_words;  // of this thread's calls

bool wished(Comm& comm, const char* key) { return State::get().setting(key, comm.rank) == static_cast<long>(comm.operations); }

// Whether the communicator accepts a call: NCCL refuses while one is in progress.
bool idle(Comm& comm, const char* function) {
  if (comm.busy_polls == 0 && !comm.deferred && !comm.waits_for_members && comm.split_result == nullptr) return true;
  State::get().misused(std::string(function) + " while a call is in progress");
  return false;
}

// How long an operation is in progress. A communicator of several ranks that does not block starts a thread for each one.
long launch_polls(Comm& comm) {
  State& state = State::get();
  if (comm.blocking || comm.group->members.size() == 1) return 0;
  if (state.version() < 22300) return state.setting("enqueue_polls", comm.rank);
  state.counted("threads");
  return state.setting("enqueue_polls", comm.rank, 3);
}

// The return value of an operation's call. prepare() makes its work.
template <typename Prepare>
nccl::ncclResult_t take(Comm& comm, Lock& lock, const char* function, Prepare&& prepare) {
  if (comm.error != nccl::ncclSuccess) {
    last_words = comm.words;
    return comm.error;
  }
  if (comm.blocking) block(comm, lock, [&] { return comm.group->complete(); });
  if (!idle(comm, function)) return nccl::ncclInvalidUsage;
  ++comm.operations;
  if (wished(comm, "fails_at")) {
    last_words = "the fake does not like this argument";
    return nccl::ncclInvalidArgument;
  }
  if (wished(comm, "blocks_at")) {
    block(comm, lock, [] { return false; });
    return nccl::ncclUnhandledCudaError;
  }
  Enqueue enqueue = prepare();
  comm.busy_polls = launch_polls(comm);
  if (comm.busy_polls > 0) {
    comm.deferred = std::move(enqueue);
    return nccl::ncclInProgress;
  }
  lock.unlock();
  enqueue();
  return nccl::ncclSuccess;
}

nccl::ncclResult_t take_collective(nccl::ncclComm_t handle, const Signature& signature, const void* in, std::size_t inputs,
                                   void* out, std::size_t outputs, nccl::ncclStream_t stream, double scale = 1.0) {
  State& state = State::get();
  Lock lock(state.mutex);
  if (!state.usable(handle, signature.function.c_str())) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  const std::size_t size = bytes_of(signature.type);
  const Buffers buffers{.in = in, .in_bytes = inputs * size, .out = out, .out_bytes = outputs * size, .scale = scale};
  if (group_depth > 0) {
    grouped.push_back({.comm = &comm, .stream = stream, .signature = signature, .buffers = buffers});
    return nccl::ncclSuccess;
  }
  return take(comm, lock, signature.function.c_str(), [&] { return collective(comm, signature, buffers, stream); });
}

// The scale of an operation that was made.
double scale_of(nccl::ncclComm_t handle, nccl::ncclRedOp_t op) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclAllReduce")) return 0;
  const auto& scales = comm_of(handle)->scales;
  const auto found = scales.find(op);
  if (found == scales.end()) state.misused("ncclAllReduce with an operation that does not exist");
  return found == scales.end() ? 0 : found->second;
}

double value_of(const void* scalar, nccl::ncclDataType_t type) {
  switch (type) {
    case nccl::ncclFloat32: return *static_cast<const float*>(scalar);
    case nccl::ncclFloat64: return *static_cast<const double*>(scalar);
    case nccl::ncclFloat16: return tnt::testing::HalfFormat::float16().decode(*static_cast<const std::uint16_t*>(scalar));
    case nccl::ncclBfloat16: return tnt::testing::HalfFormat::bfloat16().decode(*static_cast<const std::uint16_t*>(scalar));
    default: State::get().misused("a scale of integers"); return 0;
  }
}

std::size_t ranks_of(nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  return state.usable(handle, "a collective") ? comm_of(handle)->group->members.size() : 0;
}

nccl::ncclResult_t transfer(const char* function, nccl::ncclComm_t handle, const Transfer& what, nccl::ncclStream_t stream) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, function)) return nccl::ncclInvalidArgument;
  if (group_depth == 0) state.misused(std::string(function) + " outside a group");
  grouped.push_back({.comm = comm_of(handle), .stream = stream, .transfer = what});
  return nccl::ncclSuccess;
}

// The work of a group: its collectives in order, then its messages, which do not wait for each other.
Enqueue together(Comm& comm, const std::vector<Grouped>& group) {
  std::vector<Enqueue> works;
  std::vector<Transfer> messages;
  for (const Grouped& each : group) {
    if (each.transfer) {
      messages.push_back(*each.transfer);
    } else {
      works.push_back(collective(comm, each.signature, each.buffers, each.stream));
    }
  }
  if (!messages.empty()) works.push_back(transfers(comm, messages, group.front().stream));
  return [works] {
    for (const Enqueue& enqueue : works) enqueue();
  };
}

nccl::ncclResult_t init(nccl::ncclComm_t* result, int ranks, const nccl::ncclUniqueId& id, int rank,
                        const nccl::ncclConfig_t* config) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (config == nullptr || config->magic != nccl::config_magic || config->blocking != 0) {
    state.misused("a communicator that blocks while it connects");
    return nccl::ncclInvalidUsage;
  }
  std::shared_ptr<Group>& group = state.meeting_places[id.internal];
  if (!group) {
    group = std::make_shared<Group>();
    group->members.resize(static_cast<std::size_t>(ranks));
  }
  Comm& comm = state.make(group, rank);
  comm.shares = config->splitShare == 1;
  comm.busy_polls = state.setting("init_polls", rank);
  comm.waits_for_members = true;
  if (state.setting("never_joins", rank) == 0) state.join(group, comm);
  *result = handle_of(comm);
  return nccl::ncclInProgress;
}

// The communicators made by a split that all ranks have called: this rank's at once, the others' when they ask.
bool complete_split(Comm& comm) {
  Group& group = *comm.group;
  const auto& wishes = group.splits.at(comm.split_number);
  if (wishes.size() < group.members.size()) return false;
  nccl::ncclComm_t* result = std::exchange(comm.split_result, nullptr);
  if (comm.split_color < 0) return true;
  std::vector<int> ranks;
  for (const auto& [rank, wish] : wishes) {
    if (wish.first == comm.split_color) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return wishes.at(a).second < wishes.at(b).second; });
  std::shared_ptr<Group>& part = group.parts[{comm.split_number, comm.split_color}];
  if (!part) {
    part = std::make_shared<Group>();
    part->members.resize(ranks.size());
  }
  State& state = State::get();
  Comm& own = state.make(part, static_cast<int>(std::find(ranks.begin(), ranks.end(), comm.rank) - ranks.begin()));
  own.blocking = comm.split_blocking;
  if (comm.shares) own.abort_flag = comm.abort_flag;
  own.waits_for_members = !own.blocking;
  state.join(part, own);
  *result = handle_of(own);
  return true;
}

bool in_progress(Comm& comm) {
  if (comm.busy_polls > 0) {
    --comm.busy_polls;
    return true;
  }
  if (comm.waits_for_members && !comm.group->complete()) return true;
  comm.waits_for_members = false;
  if (comm.split_result != nullptr && !complete_split(comm)) return true;
  return comm.life == Life::finalized && (comm.on_the_way > 0 || comm.persistent > 0);
}

}  // namespace

FAKE_EXPORT nccl::ncclResult_t ncclGetVersion(int* version) {
  State& state = State::get();
  const Lock lock(state.mutex);
  *version = static_cast<int>(state.version());
  return nccl::ncclSuccess;
}

FAKE_EXPORT const char* ncclGetErrorString(nccl::ncclResult_t result) {
  switch (result) {
    case nccl::ncclSuccess: return "no error";
    case nccl::ncclUnhandledCudaError: return "unhandled cuda error";
    case nccl::ncclSystemError: return "unhandled system error";
    case nccl::ncclInternalError: return "internal error";
    case nccl::ncclInvalidArgument: return "invalid argument";
    case nccl::ncclInvalidUsage: return "invalid usage";
    case nccl::ncclRemoteError: return "remote process exited or there was a network error";
    case nccl::ncclInProgress: return "NCCL operation in progress";
    case nccl::ncclTimeout: return "timeout";
  }
  return "unknown result code";
}

FAKE_EXPORT const char* ncclGetLastError(nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (handle != nullptr) last_words = state.usable(handle, "ncclGetLastError") ? comm_of(handle)->words : "";
  return last_words.c_str();
}

FAKE_EXPORT nccl::ncclResult_t ncclGetUniqueId(nccl::ncclUniqueId* id) {
  State& state = State::get();
  const Lock lock(state.mutex);
  state.counted("ncclGetUniqueId");
  if (state.setting("unique_id_fails", -1) != 0) {
    last_words = "the fake has no network interface";
    return nccl::ncclSystemError;
  }
  *id = {};
  const std::string name = "meeting place " + std::to_string(++state.ids);
  std::memcpy(id->internal, name.c_str(), name.size());
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommInitRankConfig(nccl::ncclComm_t* comm, int ranks, nccl::ncclUniqueId id, int rank,
                                                      nccl::ncclConfig_t* config) {
  {
    const Lock lock(State::get().mutex);
    State::get().counted("ncclCommInitRankConfig");
  }
  return init(comm, ranks, id, rank, config);
}

FAKE_EXPORT nccl::ncclResult_t ncclCommInitRankScalable(nccl::ncclComm_t* comm, int ranks, int rank, int n_ids,
                                                        nccl::ncclUniqueId* ids, nccl::ncclConfig_t* config) {
  {
    const Lock lock(State::get().mutex);
    State::get().counted("ncclCommInitRankScalable");
    for (int i = 0; i < n_ids; ++i) {
      if (ids[i].internal[0] == '\0') State::get().misused("ncclCommInitRankScalable with an empty id");
    }
  }
  return init(comm, ranks, ids[0], rank, config);
}

FAKE_EXPORT nccl::ncclResult_t ncclCommSplit(nccl::ncclComm_t handle, int color, int key, nccl::ncclComm_t* part,
                                             nccl::ncclConfig_t* config) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommSplit")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  if (comm.error != nccl::ncclSuccess) return comm.error;
  if (!idle(comm, "ncclCommSplit")) return nccl::ncclInvalidUsage;
  if (comm.blocking) state.misused("ncclCommSplit of a communicator that blocks");
  comm.split_number = ++comm.splits;
  comm.split_blocking = config != nullptr && config->blocking == 1;
  comm.split_color = color;
  comm.split_result = part;
  comm.group->splits[comm.split_number][comm.rank] = {color, key};
  comm.busy_polls = state.setting("split_polls", comm.rank);
  return nccl::ncclInProgress;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommGetAsyncError(nccl::ncclComm_t handle, nccl::ncclResult_t* error) {
  State& state = State::get();
  Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommGetAsyncError")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  *error = comm.error;
  if (comm.error != nccl::ncclSuccess) return nccl::ncclSuccess;
  if (in_progress(comm)) {
    *error = nccl::ncclInProgress;
    return nccl::ncclSuccess;
  }
  if (Enqueue enqueue = std::exchange(comm.deferred, nullptr)) {
    lock.unlock();
    enqueue();
  }
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommFinalize(nccl::ncclComm_t handle) {
  State& state = State::get();
  Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommFinalize")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  if (comm.life == Life::finalized) state.misused("ncclCommFinalize twice");
  if (comm.error != nccl::ncclSuccess) return comm.error;
  comm.life = Life::finalized;
  if (comm.blocking) {
    block(comm, lock, [&] { return comm.on_the_way == 0 && comm.persistent == 0; });
    return nccl::ncclSuccess;
  }
  comm.busy_polls = state.setting("finalize_polls", comm.rank);
  return comm.busy_polls > 0 || comm.on_the_way > 0 || comm.persistent > 0 ? nccl::ncclInProgress : nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommDestroy(nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommDestroy")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  if (comm.life != Life::finalized) state.misused("ncclCommDestroy without ncclCommFinalize");
  if (comm.on_the_way > 0 || comm.busy_polls > 0) state.misused("ncclCommDestroy while something is on the way");
  comm.life = Life::destroyed;
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclCommAbort(nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclCommAbort")) return nccl::ncclInvalidArgument;
  Comm& comm = *comm_of(handle);
  if (comm.inside > 0) state.misused("ncclCommAbort while another thread is inside a call of the communicator");
  if (comm.persistent > 0) state.misused("ncclCommAbort while a graph uses the communicator: it waits for the graph's end");
  comm.life = Life::aborted;
  *comm.abort_flag = true;
  comm.deferred = nullptr;
  state.changed.notify_all();
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclRedOpCreatePreMulSum(nccl::ncclRedOp_t* op, void* scalar, nccl::ncclDataType_t type,
                                                        nccl::ncclScalarResidence_t residence, nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclRedOpCreatePreMulSum")) return nccl::ncclInvalidArgument;
  if (residence != nccl::ncclScalarHostImmediate) state.misused("a scale that is not in host memory");
  Comm& comm = *comm_of(handle);
  const int made = nccl::ncclAvg + ++comm.operations_made;
  comm.scales[made] = value_of(scalar, type);
  *op = static_cast<nccl::ncclRedOp_t>(made);
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclRedOpDestroy(nccl::ncclRedOp_t op, nccl::ncclComm_t handle) {
  State& state = State::get();
  const Lock lock(state.mutex);
  if (!state.usable(handle, "ncclRedOpDestroy")) return nccl::ncclInvalidArgument;
  if (comm_of(handle)->scales.erase(op) == 0) state.misused("ncclRedOpDestroy of an operation that does not exist");
  return nccl::ncclSuccess;
}

FAKE_EXPORT nccl::ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, nccl::ncclDataType_t type,
                                             nccl::ncclRedOp_t op, nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  if (op > nccl::ncclAvg) {
    return take_collective(comm, {"ncclAllReduce", count, type, nccl::ncclSum}, in, count, out, count, stream,
                           scale_of(comm, op));
  }
  return take_collective(comm, {"ncclAllReduce", count, type, op}, in, count, out, count, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, nccl::ncclDataType_t type,
                                                 nccl::ncclRedOp_t op, nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  return take_collective(comm, {"ncclReduceScatter", count, type, op}, in, count * ranks_of(comm), out, count, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclAllGather(const void* in, void* out, size_t count, nccl::ncclDataType_t type,
                                             nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  return take_collective(comm, {"ncclAllGather", count, type, 0}, in, count, out, count * ranks_of(comm), stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclReduce(const void* in, void* out, size_t count, nccl::ncclDataType_t type,
                                          nccl::ncclRedOp_t op, int root, nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  const bool writes = ranks_of(comm) > 0 && comm_of(comm)->rank == root;
  return take_collective(comm, {"ncclReduce", count, type, op, root}, in, count, out, writes ? count : 0, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, nccl::ncclDataType_t type, int root,
                                             nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  const bool reads = ranks_of(comm) > 0 && comm_of(comm)->rank == root;
  return take_collective(comm, {"ncclBroadcast", count, type, root}, in, reads ? count : 0, out, count, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclSend(const void* in, size_t count, nccl::ncclDataType_t type, int peer,
                                        nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  return transfer("ncclSend", comm, {.sends = true, .in = in, .bytes = count * bytes_of(type), .peer = peer}, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclRecv(void* out, size_t count, nccl::ncclDataType_t type, int peer, nccl::ncclComm_t comm,
                                        nccl::ncclStream_t stream) {
  return transfer("ncclRecv", comm, {.out = out, .bytes = count * bytes_of(type), .peer = peer}, stream);
}

FAKE_EXPORT nccl::ncclResult_t ncclGroupStart() {
  ++group_depth;
  return nccl::ncclSuccess;
}

// All calls of a group use one communicator and stream, as ours do.
FAKE_EXPORT nccl::ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || grouped.empty()) return nccl::ncclSuccess;
  const std::vector<Grouped> group = std::exchange(grouped, {});
  State& state = State::get();
  Lock lock(state.mutex);
  Comm& comm = *group.front().comm;
  if (!state.usable(handle_of(comm), "ncclGroupEnd")) return nccl::ncclInvalidArgument;
  return take(comm, lock, "ncclGroupEnd", [&] { return together(comm, group); });
}

// As NCCL does without copy engines: a group of messages.
FAKE_EXPORT nccl::ncclResult_t ncclAlltoAll(const void* in, void* out, size_t count, nccl::ncclDataType_t type,
                                            nccl::ncclComm_t comm, nccl::ncclStream_t stream) {
  const std::size_t ranks = ranks_of(comm);
  if (ranks == 0) return nccl::ncclInvalidArgument;
  {
    const Lock lock(State::get().mutex);
    State::get().counted("ncclAlltoAll");
  }
  const std::size_t bytes = count * bytes_of(type);
  ncclGroupStart();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int peer = static_cast<int>(rank);
    ncclSend(static_cast<const char*>(in) + rank * bytes, count, type, peer, comm, stream);
    ncclRecv(static_cast<char*>(out) + rank * bytes, count, type, peer, comm, stream);
  }
  return ncclGroupEnd();
}

FAKE_EXPORT void tnt_fake_nccl_reset() {
  const Lock lock(State::get().mutex);
  State::get().reset();
}

FAKE_EXPORT void tnt_fake_nccl_set(const char* key, int rank, long value) {
  const Lock lock(State::get().mutex);
  State::get().set(key, rank, value);
}

FAKE_EXPORT long tnt_fake_nccl_count(const char* what) {
  const Lock lock(State::get().mutex);
  return std::strcmp(what, "communicators") == 0 ? State::get().alive() : State::get().count(what);
}

FAKE_EXPORT const char* tnt_fake_nccl_misuse() {
  const Lock lock(State::get().mutex);
  thread_local std::string text;
  text = State::get().misuse;
  return text.c_str();
}
