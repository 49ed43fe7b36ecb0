#include "comm/hierarchical/hierarchical_device_communicator.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "comm/nccl/nccl_start.hpp"

namespace tnt {
namespace {

using Place = HierarchicalDeviceCommunicator::Place;

// Of a chunk. Below the least the launches and the lane's message cost more than their bytes; above the most nothing is gained
// but pinned memory lost.
constexpr std::size_t min_slice_bytes = std::size_t{256} * 1024;
constexpr std::size_t max_slice_bytes = std::size_t{2} * 1024 * 1024;
// Less is not worth a message of each lane's.
constexpr std::size_t min_sliced_bytes = std::size_t{4} * 1024;
constexpr std::size_t slice_alignment = 128;  // bytes: NCCL moves 16 at once, and fills lines

// Who waits inside a node for a rank that does not come names it: the other nodes' lanes, which wait for this node, give it
// time.
double lane_timeout(double timeout) { return timeout + std::min(3.0, 0.75 * timeout); }

Place find_place(Communicator& host, const std::string& node, double timeout) {
  const std::uint64_t own = hash(node);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(host.size()));
  host.all_gather(&own, all.data(), sizeof(own), TNT_UINT8, {.timeout = timeout, .detail = "finding the nodes of devices"});
  std::map<std::uint64_t, int> ranks_on;
  for (const std::uint64_t each : all) ++ranks_on[each];
  const auto self = all.begin() + host.rank();
  Place place{.node = static_cast<int>(std::find(all.begin(), all.end(), own) - all.begin()),
              .local_rank = static_cast<int>(std::count(all.begin(), self, own)),
              .local_size = ranks_on[own],
              .nodes = static_cast<int>(ranks_on.size())};
  place.equal =
      std::all_of(ranks_on.begin(), ranks_on.end(), [&](const auto& each) { return each.second == place.local_size; });
  return place;
}

CallContext connecting(const NcclOptions& options) { return {.timeout = options.timeout, .detail = "connecting devices"}; }

// Those of the same local rank; of nodes that are not equal the last.
std::unique_ptr<StagedCommunicator> make_lane(Device& device, Communicator& host, const NcclOptions& options,
                                              const Place& place) {
  const int color_of_last = place.local_rank == place.local_size - 1 ? 0 : -1;
  auto lane = host.split(place.equal ? place.local_rank : color_of_last, 0, connecting(options));
  if (!lane) return nullptr;
  return std::make_unique<StagedCommunicator>(device, std::move(lane), lane_timeout(options.timeout));
}

std::unique_ptr<StagedCommunicator> make_staged(Device& device, Communicator& host, const NcclOptions& options) {
  return std::make_unique<StagedCommunicator>(device, host.split(0, 0, connecting(options)), options.timeout);
}

std::unique_ptr<NcclCommunicator> make_nccl(Device& device, Communicator& host, const NcclOptions& options,
                                            std::shared_ptr<const NcclLibrary> library, int job_rank) {
  return std::make_unique<NcclCommunicator>(device, host, options, std::move(library), job_rank,
                                            [&](NcclHandle& handle) { connect(handle, host, options); });
}

std::unique_ptr<DeviceCommunicator> make(Device& device, Communicator& host, const NcclOptions& options,
                                         const std::string& node, std::shared_ptr<const NcclLibrary> library, int job_rank) {
  const Place place = find_place(host, node, options.timeout);
  if (place.nodes == host.size() && place.nodes > 1) {
    log(LogLevel::info, "one device on each node: all data between devices goes through pinned memory");
    return make_staged(device, host, options);
  }
  if (!library) library = open_nccl(host, options);
  compare_ranks(device, host, options, *library);
  if (place.nodes == 1) return make_nccl(device, host, options, std::move(library), job_rank);
  if (!place.equal) {
    log(LogLevel::info, "not equally many devices on each node: one of each node takes all of its data to the network");
  }
  return std::make_unique<HierarchicalDeviceCommunicator>(device, host, options, node, place, std::move(library), job_rank);
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_hierarchical_device_communicator(Device& device, Communicator& host,
                                                                          const NcclOptions& options, const std::string& node,
                                                                          std::shared_ptr<const NcclLibrary> library) {
  return make(device, host, options, node, std::move(library), host.rank());
}

HierarchicalDeviceCommunicator::HierarchicalDeviceCommunicator(Device& device, Communicator& host, const NcclOptions& options,
                                                               std::string node, const Place& place,
                                                               std::shared_ptr<const NcclLibrary> library, int job_rank)
    : device_(device),
      host_(host),
      options_(options),
      node_name_(std::move(node)),
      place_(place),
      library_(std::move(library)),
      job_rank_(job_rank),
      node_host_(host.split(place.node, 0, connecting(options))),
      node_(make_nccl(device, *node_host_, options, library_, job_rank)),
      lane_(make_lane(device, host, options, place)),
      all_(make_staged(device, host, options)),
      stream_(device, Priority::high),
      node_order_(device, *node_),
      all_order_(device, *all_),
      reduced_(device),
      crossed_(device) {}

std::string HierarchicalDeviceCommunicator::version() const {
  return fmt::format("{} inside nodes, {} between them", node_->version(), all_->version());
}

void HierarchicalDeviceCommunicator::throw_if_ended() {
  node_->throw_if_ended();
  if (lane_) lane_->throw_if_ended();
  all_->throw_if_ended();
}

// The steps of one call, each on the stream of what takes it.
class HierarchicalDeviceCommunicator::AllReduce {
 public:
  AllReduce(HierarchicalDeviceCommunicator& comm, const Call& call, const void* in, void* out, std::string_view detail)
      : comm_(comm),
        call_(call),
        in_(static_cast<const std::byte*>(in)),
        out_(static_cast<std::byte*>(out)),
        detail_(detail.empty() ? describe(call) : fmt::format("{}, {}", describe(call), detail)),
        size_(dtype_size(call.dtype)),
        slices_(comm.place_.equal ? static_cast<std::size_t>(comm.place_.local_size) : 1) {}

  void run() {
    const std::size_t wished = std::clamp(call_.count * size_ / slices_ / 4, min_slice_bytes, max_slice_bytes);
    const std::size_t per_chunk = whole(wished) / size_ * slices_;
    std::optional<Chunk> before;
    for (std::size_t first = 0; first < call_.count; first += per_chunk) {
      const Chunk chunk = cut(first, std::min(per_chunk, call_.count - first));
      reduce_inside(chunk);
      if (before) gather_inside(*before);
      reduce_across(chunk);
      before = chunk;
    }
    if (before) gather_inside(*before);
  }

 private:
  struct Chunk {
    std::size_t first;  // element
    std::size_t slice;  // elements of each local rank's; 0: all is rest
    std::size_t rest;   // elements behind the slices, which the last rank takes with its own
  };
  [[nodiscard]] static std::size_t whole(std::size_t bytes) { return bytes / slice_alignment * slice_alignment; }

  [[nodiscard]] Chunk cut(std::size_t first, std::size_t count) const {
    const std::size_t bytes = whole(count * size_ / slices_);
    const std::size_t slice = comm_.place_.equal && bytes >= min_sliced_bytes ? bytes / size_ : 0;
    return {first, slice, count - slice * slices_};
  }

  [[nodiscard]] int last() const { return comm_.place_.local_size - 1; }
  [[nodiscard]] const std::byte* in(std::size_t element) const { return in_ + element * size_; }
  [[nodiscard]] std::byte* out(std::size_t element) const { return out_ + element * size_; }
  [[nodiscard]] std::byte* own(const Chunk& chunk) const {
    return out(chunk.first + static_cast<std::size_t>(comm_.place_.local_rank) * chunk.slice);
  }
  [[nodiscard]] std::size_t behind_slices(const Chunk& chunk) const { return chunk.first + slices_ * chunk.slice; }
  [[nodiscard]] std::size_t across(const Chunk& chunk) const {  // elements of this rank's
    return chunk.slice + (comm_.place_.local_rank == last() ? chunk.rest : 0);
  }

  void reduce_inside(const Chunk& chunk) {
    DeviceCommunicator& node = *comm_.node_;
    if (chunk.slice > 0) node.reduce_scatter(in(chunk.first), own(chunk), chunk.slice, call_.dtype, call_.op, detail_);
    const std::size_t rest = behind_slices(chunk);
    if (chunk.rest > 0) node.all_reduce(in(rest), out(rest), chunk.rest, call_.dtype, call_.op, detail_);
    comm_.reduced_.record(node.stream());
  }

  void reduce_across(const Chunk& chunk) {
    if (across(chunk) == 0) return;
    DeviceCommunicator& lane = *comm_.lane_;
    comm_.reduced_.wait_on(lane.stream());
    lane.all_reduce(own(chunk), own(chunk), across(chunk), call_.dtype, call_.op, detail_);
    comm_.crossed_.record(lane.stream());
  }

  void gather_inside(const Chunk& chunk) {
    DeviceCommunicator& node = *comm_.node_;
    if (across(chunk) > 0) comm_.crossed_.wait_on(node.stream());
    if (chunk.slice > 0) node.all_gather(own(chunk), out(chunk.first), chunk.slice, call_.dtype, detail_);
    std::byte* const rest = out(behind_slices(chunk));
    if (chunk.rest > 0) node.broadcast(rest, rest, chunk.rest, call_.dtype, last(), detail_);
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
  throw_if_ended();
  check_capture(stream());
  try {
    order(stream(), std::forward<Steps>(steps));
  } catch (const Error&) {
    follow_all();
    throw;
  }
}

// Who waits for this communicator's stream waits for what was enqueued before a step failed, too.
void HierarchicalDeviceCommunicator::follow_all() noexcept {
  try {
    for (const DeviceCommunicator* each : {node_.get(), lane_.get(), all_.get()}) {
      if (each == nullptr) continue;
      reduced_.record(each->stream());
      reduced_.wait_on(stream());
    }
  } catch (const Error&) {  // the device has failed: nothing goes on
  }
}

void HierarchicalDeviceCommunicator::enqueue_collective(const Call& call, const void* in, void* out, std::string_view detail) {
  if (call.kind == Call::all_reduce && call.op != TNT_AVG) {
    enqueue(node_order_, [&] { AllReduce(*this, call, in, out, detail).run(); });
  } else {
    enqueue(all_order_, [&] { all_->collective(call, in, out, detail); });
  }
}

void HierarchicalDeviceCommunicator::enqueue_messages(std::span<const Message> messages, tnt_dtype_t dtype,
                                                      std::string_view detail) {
  enqueue(all_order_, [&] { all_->exchange(messages, dtype, detail); });
}

std::unique_ptr<DeviceCommunicator> HierarchicalDeviceCommunicator::part(int /*color*/, int /*key*/, Communicator* host) {
  if (host == nullptr) return nullptr;
  return make(device_, *host, options_, node_name_, library_, job_rank_);
}

}  // namespace tnt
