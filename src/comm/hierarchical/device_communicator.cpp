#include "comm/hierarchical/device_communicator.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "comm/nccl/init.hpp"

namespace tnt {
namespace {

using Topology = HierarchicalDeviceCommunicator::Topology;

// Bounds of a slice. A smaller slice costs more for launches and messages than for its bytes; a larger one only takes more
// pinned memory.
constexpr std::size_t min_device_slice = std::size_t{256} * 1024;
constexpr std::size_t max_device_slice = std::size_t{2} * 1024 * 1024;
// Less data is not worth one message of each cross-node communicator.
constexpr std::size_t min_sliced_bytes = std::size_t{4} * 1024;
constexpr std::size_t slice_alignment = 128;  // bytes: NCCL moves 16 at once and fills cache lines

// A rank that waits inside a node can name the missing rank. The cross-node communicators of other nodes wait longer, so that
// they do not report a timeout first.
double cross_timeout(double timeout) { return timeout + std::min(3.0, 0.75 * timeout); }

Topology find_topology(Communicator& host, const std::string& node, double timeout) {
  const std::uint64_t own = hash(node);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(host.size()));
  host.run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, all.data()},
           {.timeout = timeout, .detail = "finding the nodes of devices"});
  std::map<std::uint64_t, int> ranks_on;
  for (const std::uint64_t each : all) ++ranks_on[each];
  const auto self = all.begin() + host.rank();
  Topology topology{.node = static_cast<int>(std::find(all.begin(), all.end(), own) - all.begin()),
                    .local_rank = static_cast<int>(std::count(all.begin(), self, own)),
                    .local_size = ranks_on[own],
                    .nodes = static_cast<int>(ranks_on.size())};
  topology.uniform =
      std::all_of(ranks_on.begin(), ranks_on.end(), [&](const auto& each) { return each.second == topology.local_size; });
  return topology;
}

CallContext connecting(const NcclOptions& options) { return {.timeout = options.timeout, .detail = "connecting devices"}; }

// The ranks with the same local rank. If the nodes have different numbers of ranks: the last rank of each node.
std::unique_ptr<StagedCommunicator> make_cross(Device& device, Communicator& host, const NcclOptions& options,
                                               const Topology& topology) {
  const int color_of_last = topology.local_rank == topology.local_size - 1 ? 0 : -1;
  auto cross = host.split(topology.uniform ? topology.local_rank : color_of_last, 0, connecting(options));
  if (!cross) return nullptr;
  return std::make_unique<StagedCommunicator>(device, std::move(cross), cross_timeout(options.timeout));
}

std::unique_ptr<StagedCommunicator> make_staged(Device& device, Communicator& host, const NcclOptions& options) {
  return std::make_unique<StagedCommunicator>(device, host.split(0, 0, connecting(options)), options.timeout);
}

std::unique_ptr<NcclCommunicator> make_nccl(Device& device, Communicator& host, const NcclOptions& options,
                                            std::shared_ptr<const NcclLibrary> library, int job_rank) {
  return std::make_unique<NcclCommunicator>(device, host, options, std::move(library), job_rank,
                                            [&](NcclHandle& handle) { init_nccl(handle, host, options); });
}

std::unique_ptr<DeviceCommunicator> make(Device& device, Communicator& host, const NcclOptions& options,
                                         const std::string& node, std::shared_ptr<const NcclLibrary> library, int job_rank) {
  const Topology topology = find_topology(host, node, options.timeout);
  if (topology.nodes == host.size() && topology.nodes > 1) {
    log(LogLevel::info, "one device on each node: all data between devices goes through pinned memory");
    return make_staged(device, host, options);
  }
  if (!library) library = open_nccl(host, options);
  check_compatible(host, options, *library);
  if (topology.nodes == 1) return make_nccl(device, host, options, std::move(library), job_rank);
  if (!topology.uniform) {
    log(LogLevel::info, "nodes have different numbers of devices: one device of each node exchanges all of the node's data");
  }
  return std::make_unique<HierarchicalDeviceCommunicator>(device, host, options, node, topology, std::move(library), job_rank);
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_hierarchical_device_communicator(Device& device, Communicator& host,
                                                                          const NcclOptions& options, const std::string& node,
                                                                          std::shared_ptr<const NcclLibrary> library) {
  return make(device, host, options, node, std::move(library), host.rank());
}

HierarchicalDeviceCommunicator::HierarchicalDeviceCommunicator(Device& device, Communicator& host, const NcclOptions& options,
                                                               std::string node, const Topology& topology,
                                                               std::shared_ptr<const NcclLibrary> library, int job_rank)
    : device_(device),
      host_(host),
      options_(options),
      node_identity_(std::move(node)),
      topology_(topology),
      library_(std::move(library)),
      job_rank_(job_rank),
      local_host_(host.split(topology.node, 0, connecting(options))),
      local_(make_nccl(device, *local_host_, options, library_, job_rank)),
      cross_(make_cross(device, host, options, topology)),
      global_(make_staged(device, host, options)),
      stream_(device, Priority::high),
      local_order_(device, *local_),
      global_order_(device, *global_),
      local_done_(device),
      cross_done_(device) {}

std::string HierarchicalDeviceCommunicator::version() const {
  return fmt::format("{} inside nodes, {} between them", local_->version(), global_->version());
}

void HierarchicalDeviceCommunicator::throw_if_aborted() {
  local_->throw_if_aborted();
  if (cross_) cross_->throw_if_aborted();
  global_->throw_if_aborted();
}

void HierarchicalDeviceCommunicator::check() {
  throw_if_aborted();
  local_->check();
}

// The steps of one call. Each is enqueued on the stream of the communicator that performs it.
class HierarchicalDeviceCommunicator::AllReduce {
 public:
  AllReduce(HierarchicalDeviceCommunicator& comm, const Collective& call, std::string_view detail)
      : comm_(comm),
        call_(call),
        in_(static_cast<const std::byte*>(call.in)),
        out_(static_cast<std::byte*>(call.out)),
        detail_(detail.empty() ? describe(call) : fmt::format("{}, {}", describe(call), detail)),
        size_(dtype_size(call.dtype)),
        slices_(comm.topology_.uniform ? static_cast<std::size_t>(comm.topology_.local_size) : 1) {}

  void run() {
    const std::size_t wanted = std::clamp(call_.count * size_ / slices_ / 4, min_device_slice, max_device_slice);
    const std::size_t per_chunk = whole(wanted) / size_ * slices_;
    std::optional<Chunk> before;
    for (std::size_t first = 0; first < call_.count; first += per_chunk) {
      const Chunk chunk = cut(first, std::min(per_chunk, call_.count - first));
      reduce_local(chunk);
      if (before) gather_local(*before);
      reduce_cross(chunk);
      before = chunk;
    }
    if (before) gather_local(*before);
  }

 private:
  struct Chunk {
    std::size_t first;  // first element
    std::size_t slice;  // elements of each local rank; 0: everything is rest
    std::size_t rest;   // elements behind the slices, which belong to the last local rank
  };
  [[nodiscard]] static std::size_t whole(std::size_t bytes) { return bytes / slice_alignment * slice_alignment; }

  [[nodiscard]] Chunk cut(std::size_t first, std::size_t count) const {
    const std::size_t bytes = whole(count * size_ / slices_);
    const std::size_t slice = comm_.topology_.uniform && bytes >= min_sliced_bytes ? bytes / size_ : 0;
    return {first, slice, count - slice * slices_};
  }

  [[nodiscard]] int last() const { return comm_.topology_.local_size - 1; }
  [[nodiscard]] const std::byte* in(std::size_t element) const { return in_ + element * size_; }
  [[nodiscard]] std::byte* out(std::size_t element) const { return out_ + element * size_; }
  [[nodiscard]] std::byte* own(const Chunk& chunk) const {
    return out(chunk.first + static_cast<std::size_t>(comm_.topology_.local_rank) * chunk.slice);
  }
  [[nodiscard]] std::size_t behind_slices(const Chunk& chunk) const { return chunk.first + slices_ * chunk.slice; }
  [[nodiscard]] std::size_t cross_count(const Chunk& chunk) const {  // elements that this rank sends to other nodes
    return chunk.slice + (comm_.topology_.local_rank == last() ? chunk.rest : 0);
  }

  [[nodiscard]] Call step(Call::Kind kind, std::size_t count, int root = 0) const {
    return {.kind = kind, .dtype = call_.dtype, .op = reduces(kind) ? call_.op : TNT_SUM, .root = root, .count = count};
  }

  void reduce_local(const Chunk& chunk) {
    DeviceCommunicator& local = *comm_.local_;
    if (chunk.slice > 0) local.run({step(Call::reduce_scatter, chunk.slice), in(chunk.first), own(chunk)}, detail_);
    const std::size_t rest = behind_slices(chunk);
    if (chunk.rest > 0) local.run({step(Call::all_reduce, chunk.rest), in(rest), out(rest)}, detail_);
    comm_.local_done_.record(local.stream());
  }

  void reduce_cross(const Chunk& chunk) {
    if (cross_count(chunk) == 0) return;
    DeviceCommunicator& cross = *comm_.cross_;
    comm_.local_done_.wait_on(cross.stream());
    cross.run({step(Call::all_reduce, cross_count(chunk)), own(chunk), own(chunk)}, detail_);
    comm_.cross_done_.record(cross.stream());
  }

  void gather_local(const Chunk& chunk) {
    DeviceCommunicator& local = *comm_.local_;
    if (cross_count(chunk) > 0) comm_.cross_done_.wait_on(local.stream());
    if (chunk.slice > 0) local.run({step(Call::all_gather, chunk.slice), own(chunk), out(chunk.first)}, detail_);
    std::byte* const rest = out(behind_slices(chunk));
    if (chunk.rest > 0) local.run({step(Call::broadcast, chunk.rest, last()), rest, rest}, detail_);
  }

  HierarchicalDeviceCommunicator& comm_;
  Call call_;
  const std::byte* in_;
  std::byte* out_;
  std::string detail_;
  std::size_t size_;
  std::size_t slices_;
};

template <typename Steps>
void HierarchicalDeviceCommunicator::enqueue(StreamOrder& order, Steps&& steps) {
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  check_capture(stream());
  try {
    order(stream(), std::forward<Steps>(steps));
  } catch (const Error&) {
    join_streams();
    throw;
  }
}

// Makes this communicator's stream wait for everything that was enqueued before a step failed.
void HierarchicalDeviceCommunicator::join_streams() noexcept {
  try {
    for (const DeviceCommunicator* each : {local_.get(), cross_.get(), global_.get()}) {
      if (each == nullptr) continue;
      local_done_.record(each->stream());
      local_done_.wait_on(stream());
    }
  } catch (const Error&) {  // the device has failed; no stream continues
  }
}

void HierarchicalDeviceCommunicator::enqueue_collective(const Collective& call, std::string_view detail) {
  if (call.kind == Call::all_reduce && !call.scale && call.op != TNT_AVG && !needs_integers(call.op)) {
    enqueue(local_order_, [&] { AllReduce(*this, call, detail).run(); });
  } else {
    enqueue(global_order_, [&] { global_->run(call, detail); });
  }
}

void HierarchicalDeviceCommunicator::enqueue_messages(std::span<const Message> messages, std::string_view detail) {
  enqueue(global_order_, [&] { global_->exchange(messages, detail); });
}

std::unique_ptr<DeviceCommunicator> HierarchicalDeviceCommunicator::create_child(int /*color*/, int /*key*/,
                                                                                 Communicator* host) {
  if (host == nullptr) return nullptr;
  return make(device_, *host, options_, node_identity_, library_, job_rank_);
}

}  // namespace tnt
