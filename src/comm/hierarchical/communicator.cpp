#include "comm/hierarchical/communicator.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/network/algorithms/partial_sums.hpp"
#include "comm/network/messages/chunks.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

class NetworkAbortLink final : public RemoteAbortLink {
 public:
  explicit NetworkAbortLink(std::shared_ptr<NetworkWorld> world) : world_(std::move(world)) {}
  void abort(tnt_status_t status, const std::string& message) noexcept override { world_->abort(status, message); }
  [[nodiscard]] std::optional<Error> async_error() noexcept override {
    const NetworkWorld::Waiting waiting(*world_, {});
    return world_->async_error();
  }
  [[nodiscard]] bool all_wait(const std::vector<int>& ranks) override {
    const NetworkWorld::Waiting waiting(*world_, {});  // who asks this rank while it asks takes silence for its absence
    return world_->all_wait(ranks);
  }

 private:
  std::shared_ptr<NetworkWorld> world_;
};

// The maximum slice of a chunk. A cross-node communicator is idle during its first and last messages; with this size their cost
// is small.
constexpr std::size_t max_slice_bytes = std::size_t{2} * 1024 * 1024;

// Smaller data goes from rank to rank in one round of messages. Larger data would pass each link once for each pair of ranks.
constexpr std::size_t min_bytes_by_nodes = std::size_t{4} * 1024;

// Whether data is reduced inside nodes first. The memory of a node holds 16-bit types in float32, so that the sum of a node is
// not rounded before it is added to those of other nodes. Not for means of small integers, whose sums are wider, or of what is
// cast for the network, and not for tensors of several types, each of which is rounded in its own way.
bool reduces_by_nodes(const FusedBuffer& fused, tnt_op_t op) {
  if (!PartialSums::can(fused.dtype(), op) || (op == TNT_AVG && fused.narrows())) return false;
  if (dtype_size(fused.dtype()) != 2 || fused.narrows()) return true;
  return std::all_of(fused.views().begin(), fused.views().end(),
                     [&](const TensorView& view) { return view.dtype.value_or(fused.dtype()) == fused.dtype(); });
}

// The ranks of the communicator on each node. Nodes are in the order of their first ranks.
std::vector<std::vector<std::size_t>> ranks_by_node(const NetworkCommunicator& all) {
  std::vector<std::vector<std::size_t>> nodes;
  std::map<int, std::size_t> index;
  for (std::size_t rank = 0; rank < all.members().size(); ++rank) {
    const auto [found, is_new] = index.emplace(all.world().node(all.members()[rank]), nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[found->second].push_back(rank);
  }
  return nodes;
}

}  // namespace

std::shared_ptr<RemoteAbortLink> remote_abort_link(std::shared_ptr<NetworkWorld> world) {
  return std::make_shared<NetworkAbortLink>(std::move(world));
}

std::unique_ptr<Communicator> HierarchicalCommunicator::make(std::unique_ptr<NetworkCommunicator> all,
                                                             std::unique_ptr<Communicator> local) {
  if (local->size() == all->size()) return local;
  const auto nodes = ranks_by_node(*all);
  if (std::all_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() == 1; })) return all;
  return std::unique_ptr<Communicator>(new HierarchicalCommunicator(std::move(all), std::move(local), nodes));
}

HierarchicalCommunicator::HierarchicalCommunicator(std::unique_ptr<NetworkCommunicator> all,
                                                   std::unique_ptr<Communicator> local,
                                                   const std::vector<std::vector<std::size_t>>& nodes)
    : global_(std::move(all)), local_(std::move(local)) {
  std::vector<std::size_t> order;
  std::vector<std::size_t> sizes;
  sizes.reserve(nodes.size());
  for (const auto& node : nodes) {
    order.insert(order.end(), node.begin(), node.end());
    sizes.push_back(node.size());
  }
  const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
  carriers_ = *smallest;
  equal_nodes_ = *smallest == *largest;
  nodes_are_subtrees_ = equal_nodes_ && std::has_single_bit(carriers_) && std::is_sorted(order.begin(), order.end());
  if (!nodes_are_subtrees_) global_->set_reduction_order(std::move(order), std::move(sizes));  // else it is the same tree
  for (std::size_t place = 0; place < carriers_ && equal_nodes_; ++place) {
    for (const auto& node : nodes) ranks_by_place_.push_back(node[place]);
  }
  const auto place = static_cast<std::size_t>(local_->rank());
  if (place >= carriers_) return;
  std::vector<int> peers;
  peers.reserve(nodes.size());
  for (const auto& node : nodes) peers.push_back(global_->members()[node[place]]);
  for (std::size_t i = 0; i < cross_.size(); ++i) cross_[i].comm = global_->subgroup(peers, static_cast<int>(i));
}

void HierarchicalCommunicator::cancel() noexcept {
  global_->cancel();
  local_->cancel();
  for (CrossNode& cross : cross_) {
    if (cross.comm) cross.comm->cancel();
  }
}

std::unique_ptr<Communicator> HierarchicalCommunicator::split(int color, int key, const CallContext& context) {
  auto all = global_->split_network(color, key, context);
  auto local = local_->split(color, key, context);
  if (color < 0) return nullptr;
  return make(std::move(all), std::move(local));
}

std::unique_ptr<Communicator> HierarchicalCommunicator::duplicate_with_flat_sums(const CallContext& context) {
  if (nodes_are_subtrees_) return split(0, 0, context);
  return global_->split_network(0, 0, context);
}

std::unique_ptr<Communicator> HierarchicalCommunicator::create_group(std::span<const int> members, int tag,
                                                                     const CallContext& context) {
  std::vector<int> here;  // the group's members on this node, as local_ numbers them
  for (const auto& node : ranks_by_node(*global_)) {
    const std::vector<int> ranks(node.begin(), node.end());
    if (index_of(rank(), ranks) == ranks.size()) continue;
    for (const int member : members) {
      if (const std::size_t local = index_of(member, ranks); local < ranks.size()) here.push_back(static_cast<int>(local));
    }
  }
  auto all = global_->create_network_group(members, tag, context);
  return make(std::move(all), local_->create_group(here, tag, context));
}

// One chunk. start() reduces it inside the node to slices and hands this rank's slice to a cross-node thread. finish() gathers
// and unpacks the slices after the cross-node reduction.
class HierarchicalCommunicator::AllReduce {
 public:
  // dtype: the type that a node's memory holds. wire: the type in which slices travel between nodes.
  AllReduce(HierarchicalCommunicator& comm, const FusedBuffer& fused, tnt_dtype_t dtype, tnt_dtype_t wire, tnt_op_t op,
            const CallContext& context)
      : comm_(comm),
        fused_(fused),
        dtype_(dtype),
        wire_(wire),
        op_(op == TNT_AVG ? TNT_SUM : op),
        is_mean_(op == TNT_AVG),
        context_{.timeout = context.timeout, .detail = context.detail},
        phases_(context),
        size_(dtype_size(dtype)),
        slices_(comm.carriers_),
        place_(static_cast<std::size_t>(comm.local_->rank())) {
    const std::size_t min_slice_bytes = std::size_t{32} * 1024;
    const std::size_t slice = std::clamp(fused.count() * size_ / slices_ / 4, min_slice_bytes, max_slice_bytes);
    per_chunk_ = slice / cache_line_bytes * cache_line_bytes / size_ * slices_;
  }

  // Waits for the cross-node threads before their memory is freed; the abort makes their operations fail soon.
  ~AllReduce() {
    for (auto& chunk : chunks_) {
      if (!chunk) continue;
      comm_.abort(TNT_ABORTED, fmt::format("rank {} could not complete an all_reduce", comm_.global_->world().rank()));
      wait_quietly(chunk->work);
    }
  }
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  [[nodiscard]] std::size_t chunks() const { return divided_up(fused_.count(), per_chunk_); }

  void start(std::size_t index) {
    const std::size_t first = index * per_chunk_;
    const std::size_t count = std::min(per_chunk_, fused_.count() - first);
    const std::size_t slice = divided_up(count, slices_);
    const StagingBuffer data = comm_.staging_.acquire(slice * slices_ * size_);
    pack_as(dtype_, fused_, first, count, data.get(), comm_.staging_);
    std::memset(data.get() + count * size_, 0, (slice * slices_ - count) * size_);
    phases_.end(Phase::pack);
    const StagingBuffer own = reduce_in_node(data, slice);
    phases_.end(Phase::reduce);
    CrossNode& cross = comm_.cross_[index % comm_.cross_.size()];
    std::shared_ptr<Work> work;
    if (cross.comm) {
      work = cross.executor.start([this, &cross, own, slice] {
        const TensorView view{.in = own.get(), .out = own.get(), .count = slice, .dtype = dtype_};
        cross.comm->run(fused_all_reduce(FusedBuffer({&view, 1}, wire_), op_), context_);
      });
    }
    chunks_[index % chunks_in_flight] = Chunk{first, count, slice, data, own, std::move(work)};
  }

  void advance(std::size_t /*index*/) {}

  void finish(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    if (chunk->work) (void)chunk->work->wait(-1);
    phases_.end(Phase::wait);
    gather_in_node(*chunk);
    if (is_mean_) divide(chunk->data.get(), chunk->count, dtype_, static_cast<std::size_t>(comm_.size()));
    unpack_from(dtype_, fused_, chunk->first, chunk->count, chunk->data.get(), comm_.staging_);
    phases_.end(Phase::unpack);
    chunk.reset();
  }

 private:
  struct Chunk {
    std::size_t first;
    std::size_t count;
    std::size_t slice;
    StagingBuffer data;
    StagingBuffer own;
    std::shared_ptr<Work> work;  // nullptr on a rank that does not use the network
  };

  // A call inside the node.
  [[nodiscard]] Call call(Call::Kind kind, std::size_t count, int root = 0) const {
    return {.kind = kind, .dtype = dtype_, .op = reduces(kind) ? op_ : TNT_SUM, .root = root, .count = count};
  }
  // This rank's slice of the node's sum.
  [[nodiscard]] StagingBuffer reduce_in_node(const StagingBuffer& data, std::size_t slice) {
    if (comm_.equal_nodes_) {
      StagingBuffer own = comm_.staging_.acquire(slice * size_);
      comm_.local_->run({call(Call::reduce_scatter, slice), data.get(), own.get()}, context_);
      return own;
    }
    if (comm_.local_->size() > 1) {
      comm_.local_->run({call(Call::all_reduce, slice * slices_), data.get(), data.get()}, context_);
    }
    return {data, data.get() + std::min(place_, slices_ - 1) * slice * size_};
  }

  void gather_in_node(const Chunk& chunk) {
    if (comm_.equal_nodes_) {
      return comm_.local_->run({call(Call::all_gather, chunk.slice), chunk.own.get(), chunk.data.get()}, context_);
    }
    for (std::size_t root = 0; root < slices_ && comm_.local_->size() > 1; ++root) {
      std::byte* part = chunk.data.get() + root * chunk.slice * size_;
      comm_.local_->run({call(Call::broadcast, chunk.slice, static_cast<int>(root)), part, part}, context_);
    }
  }

  HierarchicalCommunicator& comm_;
  const FusedBuffer& fused_;
  tnt_dtype_t dtype_;
  tnt_dtype_t wire_;
  tnt_op_t op_;
  bool is_mean_;
  CallContext context_;
  Phases phases_;
  std::size_t size_;
  std::size_t slices_;
  std::size_t place_;  // of this rank in its node
  std::size_t per_chunk_ = 0;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

bool HierarchicalCommunicator::goes_by_nodes(const FusedBuffer& fused, tnt_op_t op) const {
  const std::size_t bytes = fused.count() * dtype_size(fused.dtype());
  const bool is_small = bytes < min_bytes_by_nodes && CollectiveHandshake::gathers(global_->members().size(), bytes);
  return !is_small && reduces_by_nodes(fused, op);
}

// A reduce goes from each rank of a node to all, as an all_reduce: the network carries less than from each rank to the root.
void HierarchicalCommunicator::run(const Collective& call, const CallContext& context) {
  if (call.kind != Call::all_reduce && call.kind != Call::reduce) return global_->run(call, context);
  const ReducedTensors tensors(call, rank());
  if (!goes_by_nodes(tensors.fused(), call.op)) return global_->run(call, context);
  if (!call.owners.empty() && equal_nodes_) return reduce_to_owners(tensors.fused(), call.owners, call.op, context);
  reduce_by_nodes(call, tensors.fused(), context);
}

void HierarchicalCommunicator::reduce_by_nodes(const Call& call, const FusedBuffer& fused, const CallContext& context) {
  by_nodes(call, fused, context, [&](const FusedBuffer& inside, tnt_dtype_t dtype, tnt_dtype_t wire, const CallContext& part) {
    AllReduce stages(*this, inside, dtype, wire, call.op, part);
    run_pipeline(stages, stages.chunks());
  });
}

void HierarchicalCommunicator::by_nodes(const Call& call, const FusedBuffer& fused, const CallContext& context,
                                        const Stages& run) {
  global_->begin_handshake(call, context);
  global_->finish_handshake();
  const std::string detail =
      context.detail.empty() ? describe(call)
                             : fmt::format("{}, {}", describe(call), context.detail);  // each step reports its own operation
  const tnt_dtype_t dtype = dtype_size(fused.dtype()) == 2 ? TNT_FLOAT32 : fused.dtype();
  const bool narrows = fused.narrows();
  const FusedBuffer inside(fused.views(), narrows ? TNT_FLOAT32 : fused.dtype());
  run(inside, dtype, narrows ? fused.dtype() : dtype,
      {.timeout = context.timeout, .detail = detail, .observer = context.observer});
  global_->end_call();
}

void pack_as(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, std::byte* to,
             StagingPool& staging) {
  if (fused.dtype() == dtype) return fused.pack(first, count, to);
  const StagingBuffer packed = staging.acquire(count * dtype_size(fused.dtype()));
  fused.pack(first, count, packed.get());
  scale(to, dtype, packed.get(), fused.dtype(), count, 1.0);
}

void unpack_from(tnt_dtype_t dtype, const FusedBuffer& fused, std::size_t first, std::size_t count, const std::byte* from,
                 StagingPool& staging) {
  if (fused.dtype() == dtype) return fused.unpack(first, count, from);
  const StagingBuffer packed = staging.acquire(count * dtype_size(fused.dtype()));
  scale(packed.get(), fused.dtype(), from, dtype, count, 1.0);
  fused.unpack(first, count, packed.get());
}

void wait_quietly(const std::shared_ptr<Work>& work) noexcept {
  if (!work) return;
  try {
    (void)work->wait(-1);
  } catch (const Error&) {  // the first error has been reported already
  }
}

}  // namespace tnt
